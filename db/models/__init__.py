"""The mapped classes; importing this package registers every table on ``Base.metadata``."""

from db.models.base import Base
from db.models.calibrations import CalibrationBin, CalibrationRun
from db.models.jobs import Job
from db.models.prompt_sets import PromptRow, PromptSet
from db.models.sessions import Annotation, AuditSession, Branch, Candidate, SessionSpan, Step
from db.models.user_lists import UserList, UserTerm

__all__ = [
    "Annotation",
    "AuditSession",
    "Base",
    "Branch",
    "CalibrationBin",
    "CalibrationRun",
    "Candidate",
    "Job",
    "PromptRow",
    "PromptSet",
    "SessionSpan",
    "Step",
    "UserList",
    "UserTerm",
]
