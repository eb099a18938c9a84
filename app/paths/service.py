"""Sampling paths as jobs, reading what was drawn, and opening any path as an audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Literal

from app.audit.service import AuditService, neutral_words
from app.jobs.long_run import RunOfJobs
from app.jobs.service import JobContext
from app.paths.questions import Reader, reader_of
from app.paths.runs import (
    analysis_of,
    estimates_csv,
    partings_csv,
    paths_csv,
    payload_of,
    request_from,
    result_of,
    view_of,
    worlds_from,
)
from app.paths.types import Analysis, OpenedPath, PathsRequest, PathsView, World, WorldPaths
from app.paths.worlds import check_request, worlds_of
from app.prompts.words import beginning
from app.shared.audits import StartAudit
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.planning import Planner, pinned, prompted
from app.shared.project_cache import ProjectCache
from app.shared.wiring import Services
from coft_core.controls.measure import controls_of
from coft_core.controls.result import Controls
from coft_core.decode.plan import Plan
from coft_core.model.forced import Room
from coft_core.paths.question import decided_after
from coft_core.paths.sample import Path, batch_paths, path_seed, sample_paths
from coft_core.text.thinking import named_marks, thinking_marks
from db.jobs import JobRecord
from db.types import JsonObject

ANALYSES = 8
"""Runs whose analysis is kept: a page asks for it again with every look at the tree."""

PathsTable = Literal["paths", "estimates", "partings"]
TABLES: tuple[PathsTable, ...] = ("paths", "estimates", "partings")


class PathsService(RunOfJobs[PathsView]):
    """Samples paths; one unit of work is a batch of them in one world."""

    kind = "paths"
    kept = "A run that is cancelled keeps the paths that are drawn."
    most_listed = 100

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._audits, self._planner = services[AuditService], services[Planner]
        self._words = neutral_words(services.settings)
        self._marks = named_marks(services.settings.thinking_marks)
        self._analyses: ProjectCache[tuple[int, str, int], Analysis] = ProjectCache(ANALYSES)

    def worlds(self, request: PathsRequest) -> tuple[World, ...]:
        """The worlds that a request asks for, for reading; needs no model."""
        spans = self._audits.detect(request.prompt, request.settings) if request.spans is None else request.spans
        return worlds_of(request, spans)

    def submit(self, request: PathsRequest) -> int:
        """Start a run as a job and return the job's id, which is that of the run."""
        check_request(request)
        # Paths are opened as audits on another day. The draws of a number are twins in all worlds.
        settings = pinned(self.host.get(request.settings.model), request.settings)
        request = replace(request, settings=replace(settings, shared_noise=True))
        worlds = self.worlds(request)
        # Refused here rather than in the job: what cannot be read as a question, and a world that cannot be planned.
        self._reader(request)
        for world in worlds:
            self._plan(world)
        title = request.name.strip() or beginning(request.prompt)
        return self.begin(title, payload_of(request, worlds))

    def has_found(self, result: JsonObject) -> bool:
        """Whether paths were drawn in every world."""
        worlds = result.get("worlds", [])
        return bool(worlds) and all(world["paths"] for world in worlds)

    def found(self, job: JobRecord) -> PathsView:
        """What was drawn."""
        return view_of(job)

    def analysis(self, view: PathsView) -> Analysis:
        """What is computed of a run; the newest are kept."""
        return self._analyses.once((view.id, view.status, view.drawn), lambda: analysis_of(view))

    def open_path(self, run_id: int, world: int, number: int) -> OpenedPath:
        """Draw a path again as an audit of its own, with its seed, and say how far it is the same.

        It is the same to the end, unless rounding in a batch of another size turned a draw that stood on an edge.
        """
        view = self.view(run_id)
        if not (0 <= world < len(view.worlds) and 0 <= number < len(view.worlds[world].paths)):
            raise ServiceError(f"Run {run_id} has no path {number + 1} in a world {world + 1}; choose one that it has.")
        item = view.worlds[world]
        path = item.paths[number]
        name = f"{beginning(view.request.prompt)[:40]} · {item.world.label}, path {number + 1}"
        settings = replace(item.world.settings, seed=path.seed)
        session = self._audits.start(StartAudit(item.world.prompt, settings, item.world.spans, name)).session_id
        steps = [step.token_id for step in self._audits.run(session)]
        pairs = zip(steps, path.token_ids, strict=False)
        same = next(
            (at for at, (drawn, kept) in enumerate(pairs) if drawn != kept), min(len(steps), len(path.token_ids))
        )
        return OpenedPath(session, same, len(path.token_ids))

    def write_csv(self, run_id: int, table: str, folder: FilePath) -> FilePath:
        """Write a table of a run into a folder, atomically, and return its path."""
        return write_text(folder / f"paths-{run_id}-{table}.csv", self.csv(run_id, table))

    def csv(self, run_id: int, table: str) -> str:
        """A table of a run: its paths, estimates or partings."""
        tables = {"paths": paths_csv, "estimates": estimates_csv, "partings": partings_csv}
        if table in tables:
            return tables[table](self.analysis(self.view(run_id)))
        raise ServiceError(f"There is no table {table!r}; choose one of {', '.join(TABLES)}.")

    def _plan(self, world: World) -> Plan:
        model = prompted(self.host.get(world.settings.model), world.settings)
        return self._planner.plan(model, world.prompt, world.spans, world.settings)

    def _reader(self, request: PathsRequest) -> Reader | None:
        name = request.question.scorer.strip()
        return reader_of(request.question, self.host.scorer(name, request.settings.model) if name else None)

    def work(self, context: JobContext) -> JsonObject:
        """Draw batches of paths, each in all worlds, until there are enough or every difference is decided."""
        request, worlds = request_from(context.payload), worlds_from(context.payload)
        sampling = _Sampling(request, worlds, [self._plan(world) for world in worlds], self._reader(request))
        room = self.host.memory.room(context.waiting)
        size = min(batch_paths(planned, room.most) for planned in sampling.plans)
        context.begin_phase(0.0, worlds[0].label)
        for first in range(0, request.paths, size):
            numbers = range(first, min(first + size, request.paths))
            for place, (world, planned) in enumerate(zip(worlds, sampling.plans, strict=True)):
                context.check_cancelled()
                seeds = [path_seed(request.settings.seed, number) for number in numbers]
                with self.host.turn():
                    marks = thinking_marks(planned.model.tokenizer, self._marks)
                    sampling.take(place, sample_paths(planned, seeds, room, marks))
                done = (first * len(worlds) + (place + 1) * len(numbers)) / (request.paths * len(worlds))
                context.progress(min(done, 1.0), f"{world.label}: {numbers[-1] + 1} of {request.paths} paths")
            context.keep(result_of(sampling.drawn))
            if request.stop_early and sampling.cut_where_decided():
                break
        return result_of(sampling.drawn, self._compared(sampling, request.settings.controls, room))

    def _compared(self, sampling: _Sampling, count: int, room: Room) -> Controls | None:
        """What the first world's marked words move at the first token, which every path has in common."""
        planned, path = sampling.plans[0], sampling.drawn[0].paths[0]
        if not (count and path.token_ids and planned.prompt.positions):
            return None
        return controls_of(planned, path.token_ids[:1], neutral=count, words=self._words, room=room)


def _answers(paths: Sequence[Path], reader: Reader) -> tuple[bool | None, ...]:
    """What the answers of paths say, their thinking aside; a path whose thinking has not ended says nothing."""
    said = iter(reader([path.answer for path in paths if path.answer is not None]))
    return tuple(None if path.answer is None else next(said) for path in paths)


class _Sampling:
    """What was drawn so far, and what it answers."""

    def __init__(
        self, request: PathsRequest, worlds: Sequence[World], plans: Sequence[Plan], reader: Reader | None
    ) -> None:
        self.plans = plans
        self._alpha, self._reader = request.alpha, reader
        self.drawn = [
            WorldPaths(world, planned.certificate.text, planned.warnings, ())
            for world, planned in zip(worlds, plans, strict=True)
        ]

    def take(self, place: int, paths: Sequence[Path]) -> None:
        """Take further paths of a world."""
        item = self.drawn[place]
        outcomes = () if self._reader is None else _answers(paths, self._reader)
        self.drawn[place] = replace(item, paths=(*item.paths, *paths), outcomes=(*item.outcomes, *outcomes))

    def cut_where_decided(self) -> bool:
        """Whether every difference is decided; paths that were drawn beyond that are dropped.

        Where a batch ends then makes no difference to the result.
        """
        if self._reader is None:
            return False
        after = decided_after([item.outcomes for item in self.drawn], self._alpha)
        if after is None:
            return False
        self.drawn = [replace(item, paths=item.paths[:after], outcomes=item.outcomes[:after]) for item in self.drawn]
        return True
