"""A run: suites read with methods, batch by batch, each kept whole before the next begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

from app.evaluate.calibrating import (
    CalibrationText,
    calibration_key,
    calibration_text,
    fitted,
    note_of,
    thresholds_digest,
)
from app.evaluate.items import (
    Split,
    asks_of,
    batches,
    item_parts,
    method_digest,
    outcome_bytes,
    outcome_key,
    outcomes_of,
    size_of,
    split,
    thinned,
)
from app.evaluate.judging import Judges
from app.evaluate.prepared import LoadedGroup, MethodGroup, MethodPreparer, ReadyMethod
from app.evaluate.runs import EvaluationRequest
from app.evaluate.sources import SuiteItems
from app.hosting.model_host import ModelHost
from app.jobs.service import JobContext
from app.jobs.workers import Workers
from coft_core.conformal.calibration import Calibration
from coft_core.model.forced import Room
from coft_core.policies.base import Policy
from coft_core.suites.base import Answer, Outcome
from coft_core.suites.reading import Reader
from db.evaluations import EvaluationCalibrationRecord, EvaluationItemRecord, EvaluationsRepository
from db.types import JsonObject

Result = TypeVar("Result")

Thresholds = dict[str, Calibration | None]
"""Thresholds by method; None where there are none, or nothing was there to fit them on."""


@dataclass(frozen=True)
class EvaluationWork:
    """What a run is made of."""

    evaluation_id: int
    request: EvaluationRequest
    suites: tuple[SuiteItems, ...]
    judges: Judges

    @cached_property
    def splits(self) -> Mapping[tuple[str, int], Split]:
        """How the items of each suite are shared out, by suite and seed."""
        share = self.request.calibration_share if self.request.calibrates else 0.0
        return {
            (each.suite.key, seed): split(each.suite.key, each.items, seed, share)
            for each in self.suites
            for seed in self.request.seeds
        }


class EvaluationRun:
    """Reads what is not done yet of an evaluation."""

    def __init__(
        self,
        work: EvaluationWork,
        store: EvaluationsRepository,
        host: ModelHost,
        preparer: MethodPreparer,
        context: JobContext,
        workers: Workers,
        reader: Callable[..., Reader] = Reader,
        share: float = 1.0,
    ) -> None:
        """Wire it; ``share`` is what reading takes of the whole job."""
        self.work, self.store, self.host, self.preparer = work, store, host, preparer
        self.context, self.workers, self.reader = context, workers, reader
        self.room = workers.room(_Stoppable(host, context))
        self.tally = _Tally(work, context, share)

    def run(self) -> None:
        """Read suite after suite with all methods that are read together; then with the next ones."""
        for group in self.preparer.groups(self.work.request):
            if self._is_done(group):
                self.tally.skip(group)
                continue
            loaded = self.preparer.load(group)
            for suite in self.work.suites:
                items = tuple(thinned(item, group.detector, group.dropped) for item in suite.items)
                for seed in self.work.request.seeds:
                    _Part(self, loaded, replace(suite, items=items), seed).run()

    def _is_done(self, group: MethodGroup) -> bool:
        counts = self.store.counts(self.work.evaluation_id)
        return all(
            counts.get((suite, label, seed), 0) == len(split.evaluated)
            for (suite, seed), split in self.work.splits.items()
            for label in group.labels
        )


class _Part:
    """One suite under one seed, with the methods of a group."""

    def __init__(self, run: EvaluationRun, loaded: LoadedGroup, suite: SuiteItems, seed: int) -> None:
        self._run, self._loaded, self._group = run, loaded, loaded.group
        self._suite, self._key, self._items, self._seed = suite, suite.suite.key, suite.items, seed
        self._owner = run.work.evaluation_id
        self._split = run.work.splits[self._key, seed]

    def run(self) -> None:
        """Do what is not done yet."""
        store, tally = self._run.store, self._run.tally
        evaluated, methods = self._split.evaluated, self._group.methods
        done = store.places(self._owner, self._key, self._seed)
        wanted = [(ready, place) for ready in methods for place in evaluated if (ready.label, place) not in done]
        tally.begin(self._suite, self._seed, self._group.labels, len(evaluated))
        missing: list[EvaluationItemRecord] = []
        thresholds: Thresholds = dict.fromkeys(self._group.labels)
        if wanted:
            thresholds |= self._thresholds()
            missing = store.link(self._owner, self._records(wanted, thresholds))
        tally.restart(len(methods) * self._size(evaluated) - self._size(record.place for record in missing))
        self._read(missing, {ready.label: ready.with_thresholds(thresholds[ready.label]) for ready in methods})

    def _size(self, places: Iterable[int]) -> int:
        return sum(size_of(self._items[place]) for place in places)

    def _records(self, wanted: Sequence[tuple[ReadyMethod, int]], thresholds: Thresholds) -> list[EvaluationItemRecord]:
        judges, encoding = self._run.work.judges.versions(self._key), self._run.work.request.encoding
        parts = {
            place: item_parts(self._key, self._items[place], self._seed, judges, encoding)
            for place in {place for _, place in wanted}
        }
        digests = {
            ready.label: method_digest(
                ready.digest, self._loaded.further[ready.label], thresholds_digest(thresholds[ready.label])
            )
            for ready in self._group.methods
        }
        return [
            EvaluationItemRecord(
                suite=self._key,
                method=ready.label,
                seed=self._seed,
                place=place,
                item=self._items[place].id,
                key=outcome_key(digests[ready.label], parts[place]),
            )
            for ready, place in wanted
        ]

    # Thresholds.

    def _thresholds(self) -> Thresholds:
        """Thresholds of each method that is calibrated, by label; those that are not kept yet are fitted."""
        calibrated = [ready for ready in self._group.methods if ready.method.calibrated]
        if not calibrated:
            return {}
        model, detector = self._group.model, self._group.detector
        text = calibration_text(self._suite.suite, self._items, self._split.apart, model, detector)
        keys = {ready.label: calibration_key(ready.method, ready.digest, text, self._seed) for ready in calibrated}
        kept = {ready.label: self._kept(ready, keys[ready.label]) for ready in calibrated}
        missing = [ready for ready in calibrated if kept[ready.label] is None]
        found = kept | (self._fit(missing, keys, text) if missing else {})
        return {label: Calibration.from_bytes(data) if data else None for label, data in found.items()}

    def _kept(self, ready: ReadyMethod, key: str) -> bytes | None:
        """Values of a method's thresholds, if this evaluation or another one has fitted them."""
        store = self._run.store
        data = store.calibration(self._owner, self._key, ready.label, self._seed)
        if data is None and store.link_calibration(self._owner, self._record(ready, key, {})):
            data = store.calibration(self._owner, self._key, ready.label, self._seed)
        return data

    def _record(self, ready: ReadyMethod, key: str, summary: JsonObject) -> EvaluationCalibrationRecord:
        return EvaluationCalibrationRecord(
            suite=self._key, method=ready.label, seed=self._seed, key=key, summary=summary
        )

    def _fit(self, missing: Sequence[ReadyMethod], keys: Mapping[str, str], text: CalibrationText) -> dict[str, bytes]:
        run, group = self._run, self._group
        run.tally.fitting(self._suite, self._seed, [ready.label for ready in missing])

        def told(done: int, total: int) -> None:
            run.context.check_cancelled()
            run.host.give_way()

        methods = [ready.method for ready in missing]
        with run.host.turn():
            made = fitted(methods, group.model, text, self._seed, group.detector, run.room, told)
        values = {}
        for ready, calibration in zip(missing, made, strict=True):
            # Thresholds that could not be fitted are kept as nothing: that they were tried is part of what is done.
            values[ready.label] = b"" if calibration is None else calibration.to_bytes()
            note = note_of(calibration, self._key, ready.method, self._seed, text)
            record = self._record(ready, keys[ready.label], asdict(note))
            run.store.keep_calibration(self._owner, record, values[ready.label])
        return values

    # Items.

    def _read(self, missing: Sequence[EvaluationItemRecord], policies: Mapping[str, Policy]) -> None:
        run, loaded, group = self._run, self._loaded, self._group
        # Methods with equal keys give equal outcomes, so that one of them reads.
        left: defaultdict[int, dict[str, EvaluationItemRecord]] = defaultdict(dict)
        alike: defaultdict[int, list[EvaluationItemRecord]] = defaultdict(list)
        for record in missing:
            if record.key not in {own.key for own in alike[record.place]}:
                left[record.place][record.method] = record
            alike[record.place].append(record)
        reader = run.reader(
            group.model, loaded.models, loaded.scorers, group.detector, run.room, group.marks,
            run.work.request.encoding,
        )  # fmt: skip
        batched = [places for batch in batches(self._items) if (places := [place for place in batch if place in left])]
        parts = [_by_methods(places, left) for places in batched]
        answers = run.workers.each(
            self._reading(reader, places, [policies[label] for label in labels])
            for part in parts
            for labels, places in part.items()
        )
        for places, part in zip(batched, parts, strict=True):
            run.context.check_cancelled()
            outcomes: dict[tuple[str, int], Outcome] = {}
            for labels, read in part.items():
                outcomes |= self._outcomes(next(answers), read, labels)
            contents = {
                own.key: outcome_bytes(outcomes[own.method, place]) for place in places for own in left[place].values()
            }
            records = [record for place in places for record in alike[place]]
            run.store.keep(self._owner, records, contents)
            run.tally.advance(len(places), self._size(record.place for record in records))

    def _reading(
        self, reader: Reader, places: Sequence[int], policies: Sequence[Policy]
    ) -> Callable[[], list[list[Answer]]]:
        """What reads the items at some places, wherever it is done."""
        asks, seeds = asks_of(self._key, [self._items[place] for place in places], self._seed)
        return partial(reader.read, asks, policies, seeds)

    def _outcomes(
        self, answers: Sequence[Sequence[Answer]], places: Sequence[int], labels: Sequence[str]
    ) -> Iterator[tuple[tuple[str, int], Outcome]]:
        """Outcomes by method and place."""
        items = [self._items[place] for place in places]
        for label, row in zip(labels, answers, strict=True):
            with self._run.host.turn():
                judged = self._run.work.judges.judged(self._key, outcomes_of(items, row, self._seed))
            yield from (((label, place), outcome) for place, outcome in zip(places, judged, strict=True))


def _by_methods(
    places: Sequence[int], left: Mapping[int, Mapping[str, EvaluationItemRecord]]
) -> dict[tuple[str, ...], list[int]]:
    """Places of a batch by the methods that have to read them: what another seed has kept is not read again."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for place in places:
        alike.setdefault(tuple(left[place]), []).append(place)
    return alike


class _Stoppable:
    """Memory for batches, each of which lets others go first, and is not begun in a job that was cancelled."""

    def __init__(self, host: ModelHost, context: JobContext) -> None:
        self._host, self._context = host, context
        self._room: Room = host.memory.room(context.waiting)

    @property
    def most(self) -> int | None:
        """Bytes that one batch should take at most."""
        return self._room.most

    def run(self, size: int, work: Callable[[], Result]) -> Result:
        """Run a batch; the caller holds a turn."""
        self._context.check_cancelled()
        self._host.give_way()
        return self._room.run(size, work)


class _Tally:
    """How far a run is, judged by how much there is to read and to write."""

    def __init__(self, work: EvaluationWork, context: JobContext, share: float) -> None:
        self._context, self._of_job = context, share
        items = {each.suite.key: each.items for each in work.suites}
        self._each = sum(
            size_of(items[suite][place]) for (suite, _), split in work.splits.items() for place in split.evaluated
        )
        self._whole = max(self._each * len(work.request.methods), 1)
        self._counted = 0
        self._named, self._items, self._planned = "", 0, 0

    def skip(self, group: MethodGroup) -> None:
        """Count all of a group as done."""
        self._counted += self._each * len(group.methods)

    def begin(self, suite: SuiteItems, seed: int, labels: Collection[str], planned: int) -> None:
        """Name what is read from now on."""
        self._named = f"{suite.suite.title}, seed {seed}: {', '.join(labels)}"
        self._items, self._planned = 0, planned

    def fitting(self, suite: SuiteItems, seed: int, labels: Collection[str]) -> None:
        """Say that thresholds are fitted."""
        named = f"{suite.suite.title}, seed {seed}: fitting thresholds of {', '.join(labels)}"
        self._context.begin_phase(self._share, named)

    def restart(self, size: int) -> None:
        """Count what was done before, and judge the time left by what is read from now on."""
        self._counted += size
        self._context.begin_phase(self._share, self._named)

    def advance(self, items: int, size: int) -> None:
        """Count a batch."""
        self._items += items
        self._counted += size
        self._context.progress(self._share, f"{self._named} · {self._items:,} of {self._planned:,} items read")

    @property
    def _share(self) -> float:
        return self._of_job * min(self._counted / self._whole, 1.0)
