"""Services without a model or a database: plausible data in every state that a page has to show."""

from __future__ import annotations

from typing import Any

from app.bootstrap import FEATURES
from app.shared.wiring import Services
from tests.fakes.audits import FakeAudits
from tests.fakes.batches import FakeBatches
from tests.fakes.calibrations import FakeCalibrations
from tests.fakes.compared_sets import FakeComparedSets
from tests.fakes.comparisons import FakeComparisons
from tests.fakes.data import make_step, position_bins
from tests.fakes.library import FakeLibrary, FakeSessions
from tests.fakes.reports_and_jobs import FakeJobs, FakeReports
from tests.fakes.rereads import FakeRereads
from tests.fakes.swaps import FakeSwaps
from tests.fakes.tunings import FakeTunings
from tests.fakes.user_lists import FakeUserLists
from tests.fakes.verdicts import FakeVerdicts

STANDS_FOR = {
    "AuditService": "audits",
    "BatchService": "batches",
    "CalibrationService": "calibrations",
    "ComparisonService": "comparisons",
    "JobService": "jobs",
    "ReportService": "reports",
    "RereadService": "rereads",
    "SessionLibrary": "library",
    "SessionsRepository": "sessions",
    "SetComparisonService": "compared_sets",
    "SwapService": "swaps",
    "TuningService": "tunings",
    "UserListService": "user_lists",
    "VerdictService": "verdicts",
}

__all__ = ["FakeServices", "make_step", "position_bins"]


class FakeServices:
    """What the pages call; ``pace`` is the time that a run takes for a token, in seconds."""

    def __init__(self, pace: float = 0.0) -> None:
        self.user_lists = FakeUserLists()
        self.audits = FakeAudits(self.user_lists, pace)
        self.sessions = FakeSessions(self.audits)
        self.jobs = FakeJobs()
        self.calibrations = FakeCalibrations(self.jobs, self.audits)
        self.audits.calibrations = self.calibrations
        self.batches = FakeBatches(self.calibrations)
        self.reports = FakeReports(self.audits)
        self.library = FakeLibrary(self.audits)
        self.comparisons = FakeComparisons(self.audits)
        self.compared_sets = FakeComparedSets(self.audits)
        self.swaps = FakeSwaps(self.audits)
        self.rereads = FakeRereads(self.audits)
        self.tunings = FakeTunings(self.jobs)
        self.verdicts = FakeVerdicts(self.audits)

    features = FEATURES
    pages = Services.pages

    def __getitem__(self, kind: type) -> Any:
        return getattr(self, STANDS_FOR[kind.__name__])

    def reset(self) -> None:
        """Forget everything that a test did; the pages keep their references."""
        self.user_lists.__init__()  # type: ignore[misc]
        self.audits.__init__(self.user_lists, self.audits.pace)  # type: ignore[misc]
        self.jobs.__init__()  # type: ignore[misc]
        self.calibrations.__init__(self.jobs, self.audits)  # type: ignore[misc]
        self.audits.calibrations = self.calibrations
        self.batches.__init__(self.calibrations)  # type: ignore[misc]
        self.library.__init__(self.audits)  # type: ignore[misc]
        self.comparisons.__init__(self.audits)  # type: ignore[misc]
        self.compared_sets.__init__(self.audits)  # type: ignore[misc]
        self.swaps.__init__(self.audits)  # type: ignore[misc]
        self.rereads.__init__(self.audits)  # type: ignore[misc]
        self.tunings.__init__(self.jobs)  # type: ignore[misc]
        self.verdicts.__init__(self.audits)  # type: ignore[misc]
