"""The public surface of the core, which ``import coft_core`` gives; the names here stay."""

from __future__ import annotations

from coft_core.adapters.generate import generate_with
from coft_core.calibrate.chains import record_chains
from coft_core.calibrate.ledger import Ledger, MemoryLedger, ledger_key
from coft_core.calibrate.run import calibrate, calibrate_factorized, calibrate_many
from coft_core.calibrate.settings import CalibrationOptions
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.chain import ChainCertificate, certify_chain
from coft_core.conformal.drift import DriftReport, audit_summary, drift_report
from coft_core.conformal.quantile import conformal_threshold
from coft_core.conformal.shift import DensityRatio, Shift, estimate_density_ratio, weights_by_context
from coft_core.conformal.split import context_numbers
from coft_core.controls.measure import controls_of
from coft_core.controls.result import Controls, FamilyControls
from coft_core.decode.contributions import LeaveOneOut, SpanContribution, leave_one_out
from coft_core.decode.cost import Overhead, measure_overhead
from coft_core.decode.loop import Rollout, generate, score
from coft_core.decode.plan import plan
from coft_core.decode.reread import reread
from coft_core.errors import CalibrationMismatch, CoftError, LedgerMismatchError
from coft_core.fingerprint import Fingerprint
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import load_model
from coft_core.model.noise import NumericNoise, noise_of
from coft_core.model.served import ServedModel
from coft_core.model.served_engine import load_served
from coft_core.notebook import RunView, show
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.factorized import FactorizedCoftPolicy
from coft_core.policies.fusion import fuse_logits
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.stored_logits import StoredLogits
from coft_core.text.detection import SpanDetector, detect_spans
from coft_core.text.masking import MaskedPrompt, mask_prompt
from coft_core.text.user_list import UserList
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
    UserTerm,
)

__all__ = [
    "FAMILIES",
    "PROXY_FAMILIES",
    "Calibration",
    "CalibrationMismatch",
    "CalibrationOptions",
    "Candidate",
    "ChainCertificate",
    "CoftError",
    "CoftPolicy",
    "Controls",
    "DensityRatio",
    "Diagnostics",
    "DriftReport",
    "Example",
    "FactorizedCoftPolicy",
    "FamilyControls",
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
    "Rollout",
    "Run",
    "RunView",
    "ServedModel",
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
    "controls_of",
    "detect_spans",
    "drift_report",
    "estimate_density_ratio",
    "fuse_logits",
    "generate",
    "generate_with",
    "leave_one_out",
    "ledger_key",
    "load_model",
    "load_served",
    "mask_prompt",
    "measure_overhead",
    "noise_of",
    "plan",
    "record_chains",
    "reread",
    "score",
    "show",
    "weights_by_context",
]
