"""Split-conformal calibration: thresholds, position bins, saved calibrations and measured coverage."""

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.coverage import CoverageReport, CoverageRow, clopper_pearson, coverage_report
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
from coft_core.conformal.stepwise import Bin, PositionBins, stepwise_bins
from coft_core.conformal.values import CalibrationValues

__all__ = [
    "ESTIMATORS",
    "Bin",
    "Calibration",
    "CalibrationValues",
    "CoverageReport",
    "CoverageRow",
    "Estimator",
    "PositionBins",
    "check_alpha",
    "check_estimator",
    "clopper_pearson",
    "conformal_rank",
    "conformal_threshold",
    "coverage_range",
    "coverage_report",
    "minimum_contexts",
    "stepwise_bins",
]
