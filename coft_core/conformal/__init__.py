"""Split-conformal calibration: thresholds, position bins, saved calibrations and measured coverage."""

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.certifiable import BinSupport, Certifiable
from coft_core.conformal.chain import ChainCertificate, certify_chain, certify_supports
from coft_core.conformal.chain_coverage import ChainCoverage, chain_coverage
from coft_core.conformal.coverage import CoverageReport, CoverageRow, clopper_pearson, coverage_report
from coft_core.conformal.density_ratio import DensityRatio, estimate_density_ratio
from coft_core.conformal.drift import DriftReport, audit_summary, drift_report
from coft_core.conformal.evenness import BinEvenness
from coft_core.conformal.groups import ContextGroups, GroupSummary
from coft_core.conformal.quantile import (
    ESTIMATORS,
    Estimator,
    check_alpha,
    check_estimator,
    conformal_rank,
    conformal_threshold,
    coverage_range,
    minimum_contexts,
)
from coft_core.conformal.record import ChainRecord, Iteration, Reading
from coft_core.conformal.sequence import ChainLengths, SequenceThreshold, UnionBound, sequence_threshold, union_bound
from coft_core.conformal.shift import Shift, weights_by_context
from coft_core.conformal.split import context_numbers
from coft_core.conformal.stepwise import BIN_SPACINGS, Bin, BinSpacing, PositionBins, stepwise_bins
from coft_core.conformal.values import CalibrationValues

__all__ = [
    "BIN_SPACINGS",
    "ESTIMATORS",
    "Bin",
    "BinEvenness",
    "BinSpacing",
    "BinSupport",
    "Calibration",
    "CalibrationValues",
    "Certifiable",
    "ChainCertificate",
    "ChainCoverage",
    "ChainLengths",
    "ChainRecord",
    "ContextGroups",
    "CoverageReport",
    "CoverageRow",
    "DensityRatio",
    "DriftReport",
    "Estimator",
    "GroupSummary",
    "Iteration",
    "PositionBins",
    "Reading",
    "SequenceThreshold",
    "Shift",
    "UnionBound",
    "audit_summary",
    "certify_chain",
    "certify_supports",
    "chain_coverage",
    "check_alpha",
    "check_estimator",
    "clopper_pearson",
    "conformal_rank",
    "conformal_threshold",
    "context_numbers",
    "coverage_range",
    "coverage_report",
    "drift_report",
    "estimate_density_ratio",
    "minimum_contexts",
    "sequence_threshold",
    "stepwise_bins",
    "union_bound",
    "weights_by_context",
]
