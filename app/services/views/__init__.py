"""What the services take and give: frozen data, shared by the pages and the command line.

The pages and the command line import the core's types from here, never from the core itself.
"""

from dataclasses import replace

from app.services.views.audits import (
    FAMILY_NAMES,
    AuditSettings,
    AuditView,
    BranchView,
    ChainProgress,
    MaskPiece,
    MaskPreview,
    ModelView,
    SessionSummary,
    SettingsFit,
    StartAudit,
)
from app.services.views.calibrations import (
    BinView,
    CalibrationSummary,
    CalibrationView,
    CoverageView,
    FamilyThresholds,
)
from app.services.views.computing import Computation
from app.services.views.jobs import JobView
from app.services.views.prompt_sets import (
    PROMPT_SET_FIELDS,
    CalibrationEstimate,
    ParsedPromptSet,
    PromptPreview,
    RowError,
    SamplePromptSet,
)
from app.services.views.requests import CalibrationRequest, ReadingRequest
from app.services.views.running import RunUntil
from app.services.views.user_lists import ParsedUserList, UserListSummary, UserListView
from coft_core.conformal.certifiable import BinSupport, Certifiable
from coft_core.conformal.chain import ChainCertificate
from coft_core.conformal.drift import DriftReport, LeftOut
from coft_core.conformal.groups import GroupSummary
from coft_core.conformal.record import Iteration, Reading
from coft_core.conformal.sequence import SequenceThreshold, UnionBound
from coft_core.contributions import LeaveOneOut, SpanContribution
from coft_core.engine.loading import LoadingPhase
from coft_core.informative import WHY_WEAK, silence
from coft_core.masking.user_list import UserTerm
from coft_core.numeric_noise import NumericNoise
from coft_core.overhead import Overhead
from coft_core.types import FAMILIES, PROXY_FAMILIES, Candidate, Diagnostics, Example, FamilyStep, Span, Step

__all__ = [
    "FAMILIES",
    "FAMILY_NAMES",
    "PROMPT_SET_FIELDS",
    "PROXY_FAMILIES",
    "WHY_WEAK",
    "AuditSettings",
    "AuditView",
    "BinSupport",
    "BinView",
    "BranchView",
    "CalibrationEstimate",
    "CalibrationRequest",
    "CalibrationSummary",
    "CalibrationView",
    "Candidate",
    "Certifiable",
    "ChainCertificate",
    "ChainProgress",
    "Computation",
    "CoverageView",
    "Diagnostics",
    "DriftReport",
    "Example",
    "FamilyStep",
    "FamilyThresholds",
    "GroupSummary",
    "Iteration",
    "JobView",
    "LeaveOneOut",
    "LeftOut",
    "LoadingPhase",
    "MaskPiece",
    "MaskPreview",
    "ModelView",
    "NumericNoise",
    "Overhead",
    "ParsedPromptSet",
    "ParsedUserList",
    "PromptPreview",
    "Reading",
    "ReadingRequest",
    "RowError",
    "RunUntil",
    "SamplePromptSet",
    "SequenceThreshold",
    "SessionSummary",
    "SettingsFit",
    "Span",
    "SpanContribution",
    "StartAudit",
    "Step",
    "UnionBound",
    "UserListSummary",
    "UserListView",
    "UserTerm",
    "replace",
    "silence",
]
