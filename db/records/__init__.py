"""The frozen records that repositories take and return; no mapped object leaves the store.

A ``...Fields`` class holds what the caller decides; the matching ``...Record`` adds what the store
decides (ids and times). All logarithms are natural, all times timezone-aware UTC.
"""

from db.records.calibrations import BinRecord, CalibrationFields, CalibrationRecord
from db.records.common import JsonObject, SpanRecord
from db.records.jobs import JobRecord, JobStatus
from db.records.prompt_sets import PromptRowRecord, PromptSetRecord
from db.records.sessions import (
    AnnotationRecord,
    BranchRecord,
    SessionFields,
    SessionRecord,
    SessionSummary,
    Verdict,
)
from db.records.steps import CandidateRecord, StepRecord
from db.records.user_lists import UserListRecord, UserTermRecord

__all__ = [
    "AnnotationRecord",
    "BinRecord",
    "BranchRecord",
    "CalibrationFields",
    "CalibrationRecord",
    "CandidateRecord",
    "JobRecord",
    "JobStatus",
    "JsonObject",
    "PromptRowRecord",
    "PromptSetRecord",
    "SessionFields",
    "SessionRecord",
    "SessionSummary",
    "SpanRecord",
    "StepRecord",
    "UserListRecord",
    "UserTermRecord",
    "Verdict",
]
