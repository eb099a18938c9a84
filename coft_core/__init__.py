"""COFT: counterfactual-conformal decoding for frozen causal language models, token by token.

The public surface of the core; the names here stay.
"""

from coft_core.calibrating import calibrate, calibrate_factorized, record_chains
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.calibrator import calibrate_many
from coft_core.conformal.chain import ChainCertificate, certify_chain
from coft_core.conformal.density_ratio import DensityRatio, estimate_density_ratio
from coft_core.conformal.drift import DriftReport, audit_summary, drift_report
from coft_core.conformal.factorized import FactorizedCalibration, load_calibration
from coft_core.conformal.intersection import FamilySequences
from coft_core.conformal.ledger import Ledger, ledger_key
from coft_core.conformal.memory_ledger import MemoryLedger
from coft_core.conformal.options import CalibrationOptions
from coft_core.conformal.quantile import conformal_threshold
from coft_core.conformal.shift import Shift, weights_by_context
from coft_core.conformal.split import context_numbers
from coft_core.contributions import LeaveOneOut, SpanContribution, leave_one_out
from coft_core.decode import Rollout, generate, plan, score
from coft_core.engine.load import load_model
from coft_core.engine.model import LanguageModel
from coft_core.errors import CalibrationMismatch, CoftError, LedgerMismatchError
from coft_core.fingerprint import Fingerprint
from coft_core.fusion import fuse_logits
from coft_core.masking.masker import MaskedPrompt, mask_prompt
from coft_core.masking.spans import SpanDetector, detect_spans
from coft_core.masking.user_list import UserList, UserTerm
from coft_core.numeric_noise import NumericNoise, noise_of
from coft_core.overhead import Overhead, measure_overhead
from coft_core.policies import CoftPolicy, FactorizedCoftPolicy, VanillaPolicy
from coft_core.reread import reread
from coft_core.reread_types import Bounds, RereadFamily, RereadStep
from coft_core.stored import StoredLogits
from coft_core.types import (
    FAMILIES,
    PROXY_FAMILIES,
    Candidate,
    Diagnostics,
    Example,
    FamilyStep,
    Run,
    Span,
    Step,
)

__all__ = [
    "FAMILIES",
    "PROXY_FAMILIES",
    "Bounds",
    "Calibration",
    "CalibrationMismatch",
    "CalibrationOptions",
    "Candidate",
    "ChainCertificate",
    "CoftError",
    "CoftPolicy",
    "DensityRatio",
    "Diagnostics",
    "DriftReport",
    "Example",
    "FactorizedCalibration",
    "FactorizedCoftPolicy",
    "FamilySequences",
    "FamilyStep",
    "Fingerprint",
    "LanguageModel",
    "LeaveOneOut",
    "Ledger",
    "LedgerMismatchError",
    "MaskedPrompt",
    "MemoryLedger",
    "NumericNoise",
    "Overhead",
    "RereadFamily",
    "RereadStep",
    "Rollout",
    "Run",
    "Shift",
    "Span",
    "SpanContribution",
    "SpanDetector",
    "Step",
    "StoredLogits",
    "UserList",
    "UserTerm",
    "VanillaPolicy",
    "audit_summary",
    "calibrate",
    "calibrate_factorized",
    "calibrate_many",
    "certify_chain",
    "conformal_threshold",
    "context_numbers",
    "detect_spans",
    "drift_report",
    "estimate_density_ratio",
    "fuse_logits",
    "generate",
    "leave_one_out",
    "ledger_key",
    "load_calibration",
    "load_model",
    "mask_prompt",
    "measure_overhead",
    "noise_of",
    "plan",
    "record_chains",
    "reread",
    "score",
    "weights_by_context",
]
