"""The mapped classes; importing this package registers every table on ``Base.metadata``."""

from db.models.base import Base
from db.models.batches import Batch, BatchRow
from db.models.calibrations import CalibrationBin, CalibrationRun
from db.models.comparisons import Comparison, ComparisonColumn
from db.models.jobs import Job, JobLedger
from db.models.prompt_sets import PromptRow, PromptSet
from db.models.sessions import Annotation, AuditSession, Branch, Candidate, SessionSpan, Step
from db.models.tags import SessionTag
from db.models.user_lists import UserList, UserTerm

__all__ = [
    "Annotation",
    "AuditSession",
    "Base",
    "Batch",
    "BatchRow",
    "Branch",
    "CalibrationBin",
    "CalibrationRun",
    "Candidate",
    "Comparison",
    "ComparisonColumn",
    "Job",
    "JobLedger",
    "PromptRow",
    "PromptSet",
    "SessionSpan",
    "SessionTag",
    "Step",
    "UserList",
    "UserTerm",
]
