"""What the services take and give: frozen data, shared by the pages and the command line.

The pages and the command line import the core's types from here, never from the core itself.
"""

from dataclasses import replace

from app.services.views.audits import (
    FAMILY_NAMES,
    AuditSettings,
    AuditView,
    BranchView,
    MaskPiece,
    MaskPreview,
    ModelView,
    SessionSummary,
    StartAudit,
)
from app.services.views.calibrations import (
    BinView,
    CalibrationRequest,
    CalibrationSummary,
    CalibrationView,
    CoverageView,
    JobView,
    ParsedPromptSet,
    RowError,
)
from app.services.views.user_lists import ParsedUserList, UserListSummary, UserListView
from coft_core.masking.user_list import UserTerm
from coft_core.types import FAMILIES, PROXY_FAMILIES, Candidate, Diagnostics, Example, Span, Step

__all__ = [
    "FAMILIES",
    "FAMILY_NAMES",
    "PROXY_FAMILIES",
    "AuditSettings",
    "AuditView",
    "BinView",
    "BranchView",
    "CalibrationRequest",
    "CalibrationSummary",
    "CalibrationView",
    "Candidate",
    "CoverageView",
    "Diagnostics",
    "Example",
    "JobView",
    "MaskPiece",
    "MaskPreview",
    "ModelView",
    "ParsedPromptSet",
    "ParsedUserList",
    "RowError",
    "SessionSummary",
    "Span",
    "StartAudit",
    "Step",
    "UserListSummary",
    "UserListView",
    "UserTerm",
    "replace",
]
