"""Background work with progress and cancellation, kept as rows of the store."""

from app.jobs.context import JobCancelled, JobContext
from app.jobs.runner import JobFunction, JobRunner

__all__ = ["JobCancelled", "JobContext", "JobFunction", "JobRunner"]
