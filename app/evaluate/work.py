"""A run: suites read with methods, batch by batch, each kept whole before the next begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol, TypeVar

from app.evaluate.calibrating import (
    CalibrationText,
    calibration_key,
    calibration_text,
    fitted,
    note_json,
    note_of,
)
from app.evaluate.items import (
    ItemKey,
    MethodKey,
    Split,
    ask_seed,
    batches,
    outcome_bytes,
    size_of,
    split,
    thinned,
)
from app.evaluate.prepared import LoadedGroup, MethodGroup, MethodPreparer, ReadyMethod
from app.evaluate.runs import EvaluationRequest
from app.evaluate.sources import SuiteItems
from app.shared.jobs import JobContext
from app.shared.memory import MemoryWait
from app.shared.model_host import ModelHost
from app.shared.workers import Workers
from coft_core.conformal.calibration import Calibration
from coft_core.model.forced import Room
from coft_core.policies.base import Policy
from coft_core.suites.base import Answer, Ask, Outcome
from coft_core.suites.reading import Reader
from db.evaluations import EvaluationCalibrationRecord, EvaluationItemRecord, EvaluationsRepository
from db.types import JsonObject

Result = TypeVar("Result")


class AskReader(Protocol):
    """Reads asks under policies; see :class:`coft_core.suites.reading.Reader`."""

    def read(self, asks: Sequence[Ask], policies: Sequence[Policy], seeds: Sequence[int]) -> list[list[Answer]]:
        """Answers by policy, then by ask."""


class Judging(Protocol):
    """Says of written texts what figures need; see :mod:`app.evaluate.judging`."""

    def versions(self, suite: str) -> Mapping[str, str]:
        """Versions of those who judge a suite's texts, by name."""

    def judged(self, suite: str, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """Outcomes with what is said of them."""


@dataclass(frozen=True)
class EvaluationWork:
    """What a run is made of."""

    evaluation_id: int
    request: EvaluationRequest
    suites: tuple[SuiteItems, ...]
    judging: Judging

    @cached_property
    def splits(self) -> Mapping[tuple[str, int], Split]:
        """How the items of each suite are shared out, by suite and seed."""
        share = self.request.calibration_share if self.request.calibrates else 0.0
        return {
            (each.suite.key, seed): split(each.suite.key, each.items, seed, share)
            for each in self.suites
            for seed in self.request.seeds
        }


@dataclass(frozen=True, slots=True)
class Fitted:
    """Thresholds of a method with what they are kept under; None where there was nothing to fit them on."""

    key: str
    calibration: Calibration | None


def _key(thresholds: Mapping[str, Fitted], label: str) -> str:
    return thresholds[label].key if label in thresholds else ""


def _calibration(thresholds: Mapping[str, Fitted], label: str) -> Calibration | None:
    return thresholds[label].calibration if label in thresholds else None


@dataclass(frozen=True)
class _Bench:
    """What all parts of a run work with."""

    work: EvaluationWork
    store: EvaluationsRepository
    host: ModelHost
    context: JobContext
    reader: Callable[..., AskReader]
    workers: Workers
    room: Room
    tally: _Tally


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
        reader: Callable[..., AskReader] = Reader,
        share: float = 1.0,
    ) -> None:
        """Wire it; ``share`` is what reading takes of the whole job."""
        room = workers.room(_Stoppable(host, context))
        self._work, self._store, self._preparer = work, store, preparer
        self._tally = _Tally(work, context, share)
        self._bench = _Bench(work, store, host, context, reader, workers, room, self._tally)

    def run(self) -> None:
        """Read suite after suite with all methods that are read together; then with the next ones."""
        for group in self._preparer.groups(self._work.request):
            if self._is_done(group):
                self._tally.skip(group)
                continue
            loaded = self._preparer.load(group)
            for suite in self._work.suites:
                items = tuple(thinned(item, group.detector, group.dropped) for item in suite.items)
                for seed in self._work.request.seeds:
                    _Part(self._bench, loaded, replace(suite, items=items), seed).run()

    def _is_done(self, group: MethodGroup) -> bool:
        counts = self._store.counts(self._work.evaluation_id)
        return all(
            counts.get((suite, label, seed), 0) == len(split.evaluated)
            for (suite, seed), split in self._work.splits.items()
            for label in group.labels
        )


class _Part:
    """One suite under one seed, with the methods of a group."""

    def __init__(self, bench: _Bench, loaded: LoadedGroup, suite: SuiteItems, seed: int) -> None:
        self._bench, self._loaded, self._group = bench, loaded, loaded.group
        self._suite, self._key, self._seed = suite, suite.suite.key, seed
        self._owner = bench.work.evaluation_id
        self._split = bench.work.splits[self._key, seed]

    def run(self) -> None:
        """Do what is not done yet."""
        store, tally = self._bench.store, self._bench.tally
        evaluated, methods = self._split.evaluated, self._group.methods
        done = store.places(self._owner, self._key, self._seed)
        wanted = [(ready, place) for ready in methods for place in evaluated if (ready.label, place) not in done]
        tally.begin(self._suite, self._seed, self._group.labels, len(evaluated))
        missing: list[EvaluationItemRecord] = []
        thresholds: dict[str, Fitted] = {}
        if wanted:
            thresholds = self._thresholds()
            missing = store.link(self._owner, self._records(wanted, thresholds))
        tally.count(len(methods) * self._size(evaluated) - self._size(record.place for record in missing))
        tally.restart()
        self._read(missing, {r.label: r.with_thresholds(_calibration(thresholds, r.label)) for r in methods})

    def _size(self, places: Iterable[int]) -> int:
        return sum(size_of(self._suite.items[place]) for place in places)

    def _records(
        self, wanted: Sequence[tuple[ReadyMethod, int]], thresholds: Mapping[str, Fitted]
    ) -> list[EvaluationItemRecord]:
        judges, items = self._bench.work.judging.versions(self._key), self._suite.items
        encoding = self._bench.work.request.encoding
        keys = {
            place: ItemKey.of(self._key, items[place], self._seed, judges, encoding)
            for place in {at for _, at in wanted}
        }
        digests = {
            ready.label: MethodKey(
                ready.digest, self._loaded.further[ready.label], _key(thresholds, ready.label)
            ).digest
            for ready in self._group.methods
        }
        return [
            EvaluationItemRecord(
                suite=self._key,
                method=ready.label,
                seed=self._seed,
                place=place,
                item=items[place].id,
                key=keys[place].under(digests[ready.label]),
            )
            for ready, place in wanted
        ]

    # Thresholds.

    def _thresholds(self) -> dict[str, Fitted]:
        """Thresholds of each method that is calibrated, by label; those that are not kept yet are fitted."""
        calibrated = [ready for ready in self._group.methods if ready.method.calibrated]
        if not calibrated:
            return {}
        model, detector = self._group.model, self._group.detector
        text = calibration_text(self._suite.suite, self._suite.items, self._split.apart, model, detector)
        keys = {ready.label: calibration_key(ready.method, ready.digest, text, self._seed) for ready in calibrated}
        kept = {ready.label: self._kept(ready, keys[ready.label]) for ready in calibrated}
        missing = [ready for ready in calibrated if kept[ready.label] is None]
        found = kept | (self._fit(missing, keys, text) if missing else {})
        return {
            label: Fitted(keys[label], Calibration.from_bytes(data) if data else None) for label, data in found.items()
        }

    def _kept(self, ready: ReadyMethod, key: str) -> bytes | None:
        """Values of a method's thresholds, if this evaluation or another one has fitted them."""
        store = self._bench.store
        data = store.calibration(self._owner, self._key, ready.label, self._seed)
        if data is None and store.link_calibration(self._owner, self._record(ready, key, {})):
            data = store.calibration(self._owner, self._key, ready.label, self._seed)
        return data

    def _record(self, ready: ReadyMethod, key: str, summary: JsonObject) -> EvaluationCalibrationRecord:
        return EvaluationCalibrationRecord(
            suite=self._key, method=ready.label, seed=self._seed, key=key, summary=summary
        )

    def _fit(self, missing: Sequence[ReadyMethod], keys: Mapping[str, str], text: CalibrationText) -> dict[str, bytes]:
        bench, group = self._bench, self._group
        bench.tally.fitting(self._suite, self._seed, [ready.label for ready in missing])

        def told(done: int, total: int) -> None:
            bench.context.check_cancelled()
            bench.host.give_way()

        methods = [ready.method for ready in missing]
        with bench.host.turn():
            made = fitted(methods, group.model, text, self._seed, group.detector, bench.room, told)
        values = {}
        for ready, calibration in zip(missing, made, strict=True):
            # Thresholds that could not be fitted are kept as nothing: that they were tried is part of what is done.
            values[ready.label] = b"" if calibration is None else calibration.to_bytes()
            note = note_of(calibration, self._key, ready.method, self._seed, text)
            record = self._record(ready, keys[ready.label], note_json(note))
            bench.store.keep_calibration(self._owner, record, values[ready.label])
        return values

    # Items.

    def _read(self, missing: Sequence[EvaluationItemRecord], policies: Mapping[str, Policy]) -> None:
        bench, loaded = self._bench, self._loaded
        left: defaultdict[int, dict[str, EvaluationItemRecord]] = defaultdict(dict)
        for record in missing:
            left[record.place][record.method] = record
        group = self._group
        reader = bench.reader(
            group.model, loaded.models, loaded.scorers, group.detector, bench.room, group.marks,
            bench.work.request.encoding,
        )  # fmt: skip
        batched = [(places, _by_methods(places, left)) for places in self._batches(left)]
        answers = bench.workers.each(
            self._reading(reader, alike, [policies[label] for label in labels])
            for _, parts in batched
            for labels, alike in parts.items()
        )
        for places, parts in batched:
            bench.context.check_cancelled()
            outcomes: dict[tuple[str, int], Outcome] = {}
            for labels, alike in parts.items():
                outcomes |= self._outcomes(next(answers), alike, labels)
            records = [record for place in places for record in left[place].values()]
            contents = {record.key: outcome_bytes(outcomes[record.method, record.place]) for record in records}
            bench.store.keep(self._owner, records, contents)
            bench.tally.advance(len(places), self._size(record.place for record in records))

    def _batches(self, left: Container[int]) -> Iterator[list[int]]:
        """Places that are left, batch by batch."""
        for batch in batches(self._suite.items):
            if places := [place for place in batch if place in left]:
                yield places

    def _reading(
        self, reader: AskReader, places: Sequence[int], policies: Sequence[Policy]
    ) -> Callable[[], list[list[Answer]]]:
        """What reads the items at some places, wherever it is done."""
        items = [self._suite.items[place] for place in places]
        asks = [ask for item in items for ask in item.asks]
        seeds = [ask_seed(self._seed, self._key, item.id, number) for item in items for number in range(len(item.asks))]
        return partial(reader.read, asks, policies, seeds)

    def _outcomes(
        self, answers: Sequence[Sequence[Answer]], places: Sequence[int], labels: Sequence[str]
    ) -> dict[tuple[str, int], Outcome]:
        """Outcomes by method and place."""
        bench, items = self._bench, [self._suite.items[place] for place in places]
        outcomes: dict[tuple[str, int], Outcome] = {}
        for label, row in zip(labels, answers, strict=True):
            following = iter(row)
            made = [
                Outcome(item.id, item.unit, item.facts, tuple(next(following) for _ in item.asks), seed=self._seed)
                for item in items
            ]
            with bench.host.turn():
                judged = bench.work.judging.judged(self._key, made)
            outcomes |= {(label, place): outcome for place, outcome in zip(places, judged, strict=True)}
        return outcomes


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
        self._room: Room = host.memory.room(MemoryWait(context))

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

    def count(self, size: int) -> None:
        """Count what was done before."""
        self._counted += size

    def restart(self) -> None:
        """Judge the time left by what is read from now on."""
        self._context.begin_phase(self._share, self._named)

    def advance(self, items: int, size: int) -> None:
        """Count a batch."""
        self._items += items
        self._counted += size
        self._context.progress(self._share, f"{self._named} · {self._items:,} of {self._planned:,} items read")

    @property
    def _share(self) -> float:
        return self._of_job * min(self._counted / self._whole, 1.0)
