"""Decisions of other programs: read from files, kept, measured and reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from markupsafe import Markup

from app.decisions.reading import ParsedDecisions, judged, parse_decisions
from app.hosting.limits import DiskRoom
from app.report.service import ReportService
from app.shared.decisions import DecidedRun, DecisionRule, Rows, Runs, measured
from app.shared.errors import ServiceError
from app.shared.files import plain_json, write_bytes
from app.shared.formal_reports import Statement
from app.shared.wiring import Services
from db.decisions import DecisionRunRecord, DecisionRunsRepository


@dataclass(frozen=True)
class DecisionRequest(DecisionRule):
    """How a file of decisions is read.

    Attributes:
        name: name of the run (default: the file's)
        accept_errors: go on with the rows that can be read
    """

    name: str = ""
    accept_errors: bool = False

    @property
    def rule(self) -> DecisionRule:
        """Who counts as selected."""
        own = asdict(self)
        return DecisionRule(**{name: own[name] for name in DecisionRule.__dataclass_fields__})


class DecisionService:
    """Keeps decisions; what they say is computed from their rows."""

    def __init__(self, services: Services) -> None:
        self._runs = services[DecisionRunsRepository]
        self._reports, self._room = services[ReportService], services[DiskRoom]
        self._most = services.largest_upload

    def parse(
        self, path: Path, request: DecisionRequest, columns: Mapping[str, str] | None = None, name: str = ""
    ) -> ParsedDecisions:
        """Read a file, outcomes not judged yet."""
        return parse_decisions(path, request, columns, self._most, name)

    def add(self, parsed: ParsedDecisions, request: DecisionRequest) -> DecidedRun:
        """Store a file that was read, if something can be said of it."""
        self._room.require()
        if parsed.refusal and not request.accept_errors:
            raise ServiceError(parsed.refusal)
        read, rule = judged(parsed, request.rule), request.rule
        # A file of which nothing can be said is refused before it is stored.
        measured(read.rows, rule.exclude_small)
        kept = {"form": read.form, "columns": dict(read.mapping), "rule": asdict(rule), "left_out": read.problems}
        name = request.name.strip() or Path(read.filename).stem
        record = self._runs.add(name, read.filename, read.digest, kept, len(read.rows), Rows.dump_json(read.rows))
        return self.get(record.id)

    def list(self) -> list[DecisionRunRecord]:
        """All runs, newest first."""
        return self._runs.list()

    def get(self, run_id: int) -> DecidedRun:
        """A run with its rows."""
        record = self._runs.get(run_id)
        return Runs.validate_python({
            "id": record.id, "name": record.name, "file": record.filename, "sha256": record.digest,
            "created_at": record.created_at, "decisions": plain_json(self._runs.rows(run_id)), **record.request,
        })  # fmt: skip

    def delete(self, run_id: int) -> None:
        """Delete a run."""
        self._runs.delete(run_id)

    def shown(self, run_id: int) -> Markup:
        """A run as the page shows it."""
        return self._reports.decided_fragment(self.get(run_id))

    def content(self, run_id: int, kind: str, statement: Statement | None = None) -> tuple[str, bytes]:
        """An export: how its file ends, and its content."""
        return self._reports.decided(self.get(run_id), kind, statement or Statement())

    def write(self, run_id: int, kind: str, folder: Path, statement: Statement | None = None) -> Path:
        """Write an export into a folder."""
        suffix, content = self.content(run_id, kind, statement)
        return write_bytes(folder / f"coft-audit-decisions-{run_id}{suffix}", content)
