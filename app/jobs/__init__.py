"""Background work with progress and cancellation, kept as rows of the store."""

from app.jobs.context import JobContext
from app.jobs.runner import JobFunction, JobRunner

__all__ = ["JobContext", "JobFunction", "JobRunner"]
