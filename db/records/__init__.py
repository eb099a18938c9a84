"""The frozen records that repositories take and return; no mapped object leaves the store.

A ``...Fields`` class holds what the caller decides; the matching ``...Record`` adds what the store
decides (ids and times). All logarithms are natural, all times timezone-aware UTC.
"""

from db.records.batches import BatchPlaceRecord, BatchRecord, BatchRowRecord
from db.records.calibrations import BinRecord, CalibrationFields, CalibrationRecord
from db.records.common import JsonObject, SpanRecord
from db.records.comparisons import ComparisonRecord, MeasuredStepRecord
from db.records.jobs import JobRecord, JobStatus
from db.records.library import (
    BranchExtentRecord,
    CertificateFilter,
    LibraryChoicesRecord,
    SessionEntryRecord,
    SessionFilter,
    SessionOrder,
)
from db.records.prompt_sets import PromptRowRecord, PromptSetRecord
from db.records.sessions import (
    AnnotationFields,
    AnnotationRecord,
    BranchOutlineRecord,
    BranchRecord,
    LogKind,
    SessionBeginning,
    SessionFields,
    SessionRecord,
    SessionSummary,
    StepSupport,
    Verdict,
)
from db.records.steps import CandidateRecord, FamilyStepRecord, StepRecord
from db.records.user_lists import UserListRecord, UserTermRecord

__all__ = [
    "AnnotationFields",
    "AnnotationRecord",
    "BatchPlaceRecord",
    "BatchRecord",
    "BatchRowRecord",
    "BinRecord",
    "BranchExtentRecord",
    "BranchOutlineRecord",
    "BranchRecord",
    "CalibrationFields",
    "CalibrationRecord",
    "CandidateRecord",
    "CertificateFilter",
    "ComparisonRecord",
    "FamilyStepRecord",
    "JobRecord",
    "JobStatus",
    "JsonObject",
    "LibraryChoicesRecord",
    "LogKind",
    "MeasuredStepRecord",
    "PromptRowRecord",
    "PromptSetRecord",
    "SessionBeginning",
    "SessionEntryRecord",
    "SessionFields",
    "SessionFilter",
    "SessionOrder",
    "SessionRecord",
    "SessionSummary",
    "SpanRecord",
    "StepRecord",
    "StepSupport",
    "UserListRecord",
    "UserTermRecord",
    "Verdict",
]
