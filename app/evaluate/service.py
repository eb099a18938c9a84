"""Evaluations: asked for, run in the background, resumed after a crash, read from what is kept, opened as audits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

from app.evaluate.calibrating import note_from
from app.evaluate.estimate import Estimator
from app.evaluate.experiments.named import experiment_named
from app.evaluate.experiments.speed import SpeedRun, speed_tables
from app.evaluate.items import asks_of, items_digest, outcomes_of, sampled
from app.evaluate.judging import Judges, load_judges, unjudged
from app.evaluate.kept import KeptOutcomes, SuiteContents
from app.evaluate.opening import ItemOpener, OpenedItem
from app.evaluate.prepared import MethodPreparer
from app.evaluate.runs import (
    SPEED,
    Done,
    EvaluationEstimate,
    EvaluationRequest,
    EvaluationSummary,
    EvaluationView,
    KnownSuite,
    SuitePlan,
    plans_from,
    plans_json,
    request_from,
)
from app.evaluate.sources import SuiteItems, SuiteSources
from app.evaluate.work import EvaluationRun, EvaluationWork
from app.jobs.long_run import RunOfRows
from app.jobs.service import JobContext, JobView
from app.shared.errors import ServiceError
from app.shared.format import named
from app.shared.wiring import Services
from coft_core.conformal.quantile import check_seed
from coft_core.errors import CoftError
from coft_core.model.forced import Room
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.suites.base import Item, Outcome, Suite
from coft_core.suites.files import HubUnreachableError
from coft_core.suites.reading import Reader, start_prompt
from coft_core.text.detection import SpanDetector
from db.evaluations import EvaluationRecord, EvaluationsRepository
from db.types import JsonObject

LARGEST_SHARE = 0.5
"""Share of the items that may be kept apart to fit thresholds."""

READING_SHARE = 0.9
"""Share of a job that counts as reading where speed is measured afterwards."""


@dataclass(frozen=True, slots=True)
class SuiteReading:
    """A suite that is read apart from evaluations, with the outcomes that one would have."""

    suite: Suite
    items: tuple[Item, ...]
    source: str
    digest: str
    reader: Reader
    judges: Judges

    def outcomes(self, items: Sequence[Item], policies: Sequence[Policy], seed: int) -> list[Sequence[Outcome]]:
        """Outcomes of some of the items, of each policy."""
        key = self.suite.key
        asks, seeds = asks_of(key, items, seed)
        answers = self.reader.read(asks, policies, seeds)
        return [self.judges.judged(key, outcomes_of(items, row, seed)) for row in answers]


class EvaluationService(RunOfRows[EvaluationRecord]):
    """Runs methods on benchmarks and keeps what came of every item, which is one unit of work."""

    kind, parameter, shows_parts = "evaluation", "evaluation", True

    def __init__(
        self,
        services: Services,
        sources: SuiteSources | None = None,
        reader: Callable[..., Reader] = Reader,
        judges: Callable[[EvaluationRequest, Sequence[Suite], str], Judges] = load_judges,
    ) -> None:
        """Wire it; tests have sources, a reader of asks and judges of their own."""
        super().__init__(services, services[EvaluationsRepository])
        self._store = services[EvaluationsRepository]
        self._preparer = services[MethodPreparer]
        self._sources = sources or services[SuiteSources]
        self._opener = services[ItemOpener]
        self._reader, self._load_judges = reader, judges
        self._outcomes = KeptOutcomes(self._store)

    # What can be asked for.

    def known_suites(self) -> tuple[Suite, ...]:
        """All suites, in the order of pages and tables."""
        return self._sources.all

    def suites(self, data: str = "", read: bool = False) -> tuple[KnownSuite, ...]:
        """All suites, with whether their files are in the folder, an empty one being the program's.

        With ``read`` all files are read, so that items are counted and damage is found; that takes some seconds.
        """
        return self._sources.known(data, read)

    def estimate(self, request: EvaluationRequest) -> EvaluationEstimate:
        """What an evaluation will take, by a trial of each suite that can be read; loads the model."""
        _require(request)
        request = self._preparer.settled(request)
        problems = [(method, self._preparer.problem(method)) for method in request.methods]
        able = tuple(method for method, problem in problems if not problem)
        missing = [problem for _, problem in problems if problem]
        suites, unreached = [], []
        for key in request.suites:
            try:
                suites.append(self._taking_part(key, request))
            except HubUnreachableError:
                unreached.append(self._sources.suite(key).title)
            except CoftError as error:
                missing.append(str(error))
        if unreached:
            missing.append(str(HubUnreachableError(f"{named(unreached)} {'is' if len(unreached) == 1 else 'are'}")))
        missing += unjudged(request, [read.suite for read in suites])
        work = EvaluationWork(0, replace(request, methods=able), tuple(suites), Judges({}))
        found = Estimator(self.host, self._preparer, self._reader).estimate(work, missing)
        if (asked := request.experiment) is None:
            return found
        labels = [method.label for method in request.methods]
        timed = [table.planned(labels) for table in speed_tables(experiment_named(asked.name)).values()]
        return replace(found, missing=(*asked.left_out, *found.missing, *timed))

    def submit(self, request: EvaluationRequest) -> int:
        """Store an evaluation, start it as a job, and return the evaluation's id.

        All that it needs is loaded before: what is missing is said here, and not in the middle of the run.
        """
        _require(request)
        if not request.name.strip():
            raise ServiceError("The evaluation has no name; give it one.")
        request = self._preparer.settled(request)
        self._preparer.check(request)
        suites = tuple(self._taking_part(key, request) for key in request.suites)
        self._require_beginnings(request, suites)
        work = EvaluationWork(0, request, suites, self._judges(request))
        with self._store.together():
            record = self._store.add(request.name, asdict(request), plans_json(_plans(work)))
            self.begin(record)
        return record.id

    def reading(self, key: str, data: str, model: LanguageModel, detector: SpanDetector, room: Room) -> SuiteReading:
        """A suite that is to be read with a model at once, without being kept."""
        request = EvaluationRequest("", (key,), (), data=data)
        read = self._taking_part(key, request)
        judges = self._load_judges(request, [read.suite], str(model.device))
        reader = self._reader(model, detector=detector, room=room, marks=self._preparer.marks(model))
        return SuiteReading(read.suite, read.items, read.source, items_digest(read.items), reader, judges)

    # What becomes of it.

    def is_left(self, row: EvaluationRecord) -> bool:
        """Whether something is not done."""
        return self._summary(row, self._store.counts(row.id), self.job(row)).left

    def about(self, row: EvaluationRecord) -> JsonObject:
        """The experiment that it is of."""
        experiment = request_from(row.request).experiment
        return {} if experiment is None else {"experiment": experiment.title}

    def list(self) -> tuple[EvaluationSummary, ...]:
        """All evaluations, newest first."""
        counts, jobs = self._store.all_counts(), {job.id: job for job in self.jobs.list(self.kind, limit=None)}
        return tuple(
            self._summary(record, counts.get(record.id, {}), jobs.get(record.job_id or 0))
            for record in self._store.list()
        )

    def view(self, evaluation_id: int) -> EvaluationView:
        """An evaluation with how far it is and what is said of its thresholds; needs neither model nor data."""
        record = self._store.get(evaluation_id)
        own = self._summary(record, self._store.counts(record.id), self.job(record))
        request = own.request
        found = {(each.suite, each.method, each.seed): each for each in self._store.calibrations(record.id)}
        ordered = product(request.suites, (method.label for method in request.methods), request.seeds)
        return EvaluationView(
            own.id,
            own.name,
            request,
            own.created_at,
            own.job,
            own.progress,
            plans_from(record.plan, request.suites),
            tuple(note_from(found[place].summary, *place) for place in ordered if place in found),
            unjudged(request, [suite for suite in self._sources.all if suite.key in request.suites]),
        )

    def _summary(
        self, record: EvaluationRecord, counts: Mapping[tuple[str, str, int], int], job: JobView | None
    ) -> EvaluationSummary:
        request = request_from(record.request)
        plans = {plan.suite: plan for plan in plans_from(record.plan, request.suites)}
        progress = tuple(
            Done(suite, method.label, seed, counts.get((suite, method.label, seed), 0), plans[suite].evaluated[seed])
            for suite, method, seed in product(request.suites, request.methods, request.seeds)
        )
        return EvaluationSummary(record.id, record.name, request, record.created_at, job, progress)

    def outcomes(self, evaluation_id: int, suite: str, method: str) -> tuple[Outcome, ...]:
        """What became of the items that are done: by seed, then in the suite's order."""
        request = request_from(self._store.get(evaluation_id).request)
        _require_part("suite", suite, request.suites)
        _require_part("method", method, [each.label for each in request.methods])
        return self._outcomes.of(evaluation_id, suite).get(method, ())

    def suite_outcomes(self, evaluation_id: int, suite: str) -> SuiteContents:
        """The same of all methods, by their labels; those of which nothing is done are left out."""
        return self._outcomes.of(evaluation_id, suite)

    def items(self, evaluation_id: int, suite: str) -> tuple[Item, ...]:
        """The items of a suite that take part; needs the suite's data."""
        record = self._store.get(evaluation_id)
        _require_part("suite", suite, request_from(record.request).suites)
        return self._as_planned(suite, record).items

    def open_item(self, evaluation_id: int, suite: str, method: str, item: str, seed: int, text: int = 0) -> OpenedItem:
        """Start an audit of what an item asked under a method and seed; needs the suite's data and the model."""
        record = self._store.get(evaluation_id)
        request = request_from(record.request)
        methods = {each.label: each for each in request.methods}
        for what, asked, known in (
            ("suite", suite, request.suites), ("seed", seed, request.seeds), ("method", method, methods),
        ):  # fmt: skip
            _require_part(what, asked, known)
        read = self._as_planned(suite, record)
        found = next((each for each in read.items if each.id == item), None)
        if found is None:
            raise ServiceError(f"{read.suite.title} has no item {item!r} in this evaluation.")
        values = self._store.calibration(evaluation_id, suite, method, seed)
        if methods[method].calibrated and values is None:
            raise ServiceError(
                f"The thresholds of “{method}” on {read.suite.title} are not fitted yet; resume the run."
            )
        title = f"{record.name}: {read.suite.title}"
        return self._opener.open(title, methods[method], found, suite, seed, values, text, request.encoding)

    # Items.

    def _taking_part(self, key: str, request: EvaluationRequest) -> SuiteItems:
        read = self._sources.read(key, request.data)
        ids = {item.id for item in read.items}
        if len(ids) < len(read.items):
            raise ServiceError(
                f"{read.suite.title} has items with the same id; take its files from their publisher again."
            )
        return replace(read, items=tuple(sampled(key, read.items, request.limit)))

    def _as_planned(self, key: str, record: EvaluationRecord) -> SuiteItems:
        """The items of a suite, which must be those that were read when the evaluation was asked for."""
        request = request_from(record.request)
        (plan,) = plans_from(record.plan, (key,))
        read = self._taking_part(key, request)
        if items_digest(read.items) != plan.digest:
            raise ServiceError(
                f"The items of {read.suite.title} are no longer those that “{record.name}” began with ({plan.source}); "
                "put the files back, or start a new evaluation."
            )
        return read

    def _require_beginnings(self, request: EvaluationRequest, suites: Sequence[SuiteItems]) -> None:
        """Refuse suites whose texts begin a document for a model that has no token to begin with."""
        asks = (ask for read in suites for item in read.items for ask in item.asks)
        if any(not ask.prompt.strip() for ask in asks):
            start_prompt(self.host.get(request.model))

    def _judges(self, request: EvaluationRequest) -> Judges:
        suites = [self._sources.suite(key) for key in request.suites]
        return self._load_judges(request, suites, str(self.host.get(request.model).device))

    # Running.

    def work(self, row: EvaluationRecord, context: JobContext) -> JsonObject:
        """Read what is left of all suites with all methods, then measure speed where the request asks for it."""
        request = request_from(row.request)
        # A run that ends early is shown too, with what it has kept.
        context.keep({"evaluation_id": row.id})
        context.progress(0.0, "reading the suites")
        suites = tuple(self._as_planned(key, row) for key in request.suites)
        work = EvaluationWork(row.id, request, suites, self._judges(request))
        share = READING_SHARE * bool(suites) if request.measures else 1.0
        if suites:
            with self.workers.hired(context) as workers:
                EvaluationRun(work, self._store, self.host, self._preparer, context, workers, self._reader, share).run()
        made: JsonObject = {"items": sum(self._store.counts(row.id).values())}
        if request.experiment is not None and request.measures:
            tables = speed_tables(experiment_named(request.experiment.name))
            made[SPEED] = SpeedRun(self.host, self._preparer, context).run(request, tables, share)
        return made


def _require(request: EvaluationRequest) -> None:
    """Refuse what cannot be asked for, whatever model and data are."""
    for what, told in (
        ("suite", request.suites),
        ("method", tuple(method.label for method in request.methods)),
        ("seed", request.seeds),
    ):
        # An experiment that only measures speed reads no suite.
        none = not told and not (what == "suite" and request.measures)
        if none or len(set(told)) < len(told):
            raise ServiceError(f"Name at least one {what}, each once.")
    for seed in request.seeds:
        check_seed(seed)
    if request.limit is not None and request.limit < 1:
        raise ServiceError(f"The limit is {request.limit}; take at least one item, or leave it out.")
    if not 0 < request.calibration_share <= LARGEST_SHARE:
        raise ServiceError(
            f"The calibration share is {request.calibration_share:g}; choose more than 0 and at most {LARGEST_SHARE}."
        )


def _require_part(what: str, name: object, known: Iterable[object]) -> None:
    if name not in (listed := list(known)):
        raise ServiceError(f"This evaluation has no {what} {name!r}; it has {', '.join(map(str, listed))}.")


def _plans(work: EvaluationWork) -> tuple[SuitePlan, ...]:
    plans = []
    for read in work.suites:
        splits = {seed: work.splits[read.suite.key, seed] for seed in work.request.seeds}
        plans.append(
            SuitePlan(
                suite=read.suite.key,
                title=read.suite.title,
                source=read.source,
                release=read.release,
                files=read.files,
                digest=items_digest(read.items),
                items=len(read.items),
                units=len({item.unit for item in read.items}),
                calibrated_on={seed: len(split.apart) for seed, split in splits.items()},
                evaluated={seed: len(split.evaluated) for seed, split in splits.items()},
            )
        )
    return tuple(plans)
