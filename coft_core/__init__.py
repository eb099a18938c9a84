"""COFT: counterfactual-conformal decoding for frozen causal language models, token by token.

The public surface of the core; the names here stay.
"""

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.calibrator import calibrate
from coft_core.conformal.quantile import conformal_threshold
from coft_core.decode import Rollout, generate, plan, score
from coft_core.engine.load import load_model
from coft_core.engine.model import LanguageModel
from coft_core.errors import CalibrationMismatch, CoftError
from coft_core.fingerprint import Fingerprint
from coft_core.fusion import fuse_logits
from coft_core.masking.masker import MaskedPrompt, mask_prompt
from coft_core.masking.spans import SpanDetector, detect_spans
from coft_core.masking.user_list import UserList, UserTerm
from coft_core.policies import CoftPolicy, VanillaPolicy
from coft_core.types import FAMILIES, PROXY_FAMILIES, Candidate, Diagnostics, Example, Run, Span, Step

__all__ = [
    "FAMILIES",
    "PROXY_FAMILIES",
    "Calibration",
    "CalibrationMismatch",
    "Candidate",
    "CoftError",
    "CoftPolicy",
    "Diagnostics",
    "Example",
    "Fingerprint",
    "LanguageModel",
    "MaskedPrompt",
    "Rollout",
    "Run",
    "Span",
    "SpanDetector",
    "Step",
    "UserList",
    "UserTerm",
    "VanillaPolicy",
    "calibrate",
    "conformal_threshold",
    "detect_spans",
    "fuse_logits",
    "generate",
    "load_model",
    "mask_prompt",
    "plan",
    "score",
]
