"""Attribute swaps: the same prompt with one attribute exchanged, and what follows it with and without the policy."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Lock
from typing import Any, cast

from pydantic import TypeAdapter

from app.audit.service import AuditService
from app.hosting.model_host import ModelHost
from app.hosting.rollouts import RolloutPool
from app.jobs.service import FOR_MEMORY
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from app.shared.exchanges import Variant
from app.shared.files import write_text
from app.shared.operations import Progress
from app.shared.planning import Planner, pinned, prompted, vanilla
from app.shared.policies import policy_name
from app.shared.project_cache import InProject, ProjectCache, in_present
from app.shared.wiring import Services
from app.swap.distributions import (
    Distributions,
    SwapTable,
    candidates_of,
    controls_of,
    distributions_at,
    gaps_between,
    swap_csv,
    views_of,
)
from app.swap.types import (
    SwapChain,
    SwapControls,
    SwapOutcome,
    SwapProgress,
    SwapRequest,
    SwapResult,
    SwapToken,
)
from app.swap.variants import ComparedGroup, compared_groups, control_variants, swap_notes, swap_variants
from coft_core.decode.cost import reserved_bytes
from coft_core.decode.loop import ROOT_PATH, Rollout
from coft_core.decode.plan import Plan
from coft_core.types import Span, Step
from db.swaps import SwapsRepository
from db.types import JsonObject

KEPT = 16


class SwapCancelled(ServiceError):  # noqa: N818 - cancelling is no error
    """A comparison was ended by whoever began it."""


@dataclass(frozen=True, slots=True)
class SwapWatch:
    """One running comparison of so many ``chains`` of at most ``length`` tokens; it ends when ``stop`` is set."""

    number: int
    chains: int
    length: int
    stop: Event = field(default_factory=Event)

    def told(self, chain: int, tokens: float, label: str, decoding: str) -> SwapProgress:
        """How far it is after so many chains, and so many tokens of the current one."""
        self.check()
        return SwapProgress(self.number, (chain + tokens / self.length) / self.chains, label, decoding)

    def waits(self, waits: bool) -> None:
        """Told while a token waits for memory, which whoever cancels need not wait for."""
        del waits
        self.check()

    def check(self) -> None:
        """End here if it is to end."""
        if self.stop.is_set():
            raise SwapCancelled("The comparison was cancelled; nothing of it is kept.")


@dataclass(frozen=True, slots=True)
class KeptSwap:
    """A comparison that is done: what was asked, each step of it that was read, and its key where it is stored."""

    request: SwapRequest
    steps: dict[int, SwapResult]
    key: str = ""


STORED: TypeAdapter[KeptSwap] = TypeAdapter(KeptSwap)
# Steps are written without their logits, whose type the core's words do not name while the program runs.
STORED.rebuild(_types_namespace={"StoredLogits": object})


_CHAIN = {"steps": {"__all__": {"logits"}}}
_UNKEPT: Any = {"steps": {"__all__": {"outcomes": {"__all__": {"vanilla": _CHAIN, "policy": _CHAIN}}}}}
"""Steps are stored without their logits."""


def _bytes_of(kept: KeptSwap) -> bytes:
    # Thresholds may be infinite, which Python's JSON writes and reads and strict JSON does not know.
    return json.dumps(STORED.dump_python(kept, mode="json", exclude=_UNKEPT), ensure_ascii=False).encode()


MOST_CANDIDATES = 50
ROWS = 16
"""Variants whose compared token is read in one forward."""
COMPARABLE = "other words for each group, other wordings"
"""What a comparison is at while it reads its controls."""


class SwapService:
    """Exchanges attributes in prompts and compares what follows; only what :meth:`store` is told to is stored.

    The newest results are kept in memory, so that another step can be read and tables written without a second run.
    """

    def __init__(self, services: Services) -> None:
        self._audits, self._planner, self._host = services[AuditService], services[Planner], services[ModelHost]
        # Chains that are being written are kept in the pool between two tokens.
        self._pool, self._swaps = services[RolloutPool], services[SwapsRepository]
        self._numbers, self._lock = count(1), Lock()
        self._running: dict[InProject, SwapWatch] = {}
        self._kept: ProjectCache[int, KeptSwap] = ProjectCache(KEPT)

    def variants(self, request: SwapRequest) -> tuple[Variant, ...]:
        """The variants that a request compares, for reading and correcting; needs no model."""
        return swap_variants(request, self._spans(request))

    def groups(self, request: SwapRequest) -> tuple[ComparedGroup, ...]:
        """The groups that the variants belong to with the words that are their controls; none without controls."""
        return compared_groups(request, self._spans(request)) if request.settings.controls else ()

    def _spans(self, request: SwapRequest) -> tuple[Span, ...]:
        if request.spans is not None:
            return request.spans
        return tuple(self._audits.detect(request.prompt, request.settings))

    def compare(self, request: SwapRequest, progress: Progress | None = None) -> SwapResult:
        """Run every variant under vanilla decoding and under the policy, and compare one step's distributions."""
        with closing(self.run(request)) as stream:
            for item in stream:
                if isinstance(item, SwapResult):
                    return item
                if progress is not None:
                    progress(item.share, item.label)
        raise AssertionError("a comparison ends with its result")

    def run(self, request: SwapRequest) -> Generator[SwapProgress | SwapResult]:
        """The same as a stream: progress before the first token and after each, the result at the end.

        Closing the stream, or :meth:`cancel` with the number that its progress carries, ends it after the current
        token.
        """
        _check(request)
        request = replace(request, spans=self._spans(request))
        variants = self.variants(request)
        length = max(request.max_new_tokens, request.answer_step + 1)
        # Another step may be read, and a chain begun as a session, on another day.
        # The chains of all variants are twins.
        asked = replace(request.settings, max_new_tokens=length, shared_noise=not request.settings.greedy)
        settings = pinned(self._host.get(request.settings.model), asked)
        # Everything is planned before anything runs, so that a refused variant costs no chain.
        plans = self._plans(variants, settings)
        first = _masked_ids(plans[0][1])
        outcomes, distributions = [], []
        parts = 2 * len(variants) + bool(settings.controls)
        with self._watched(parts, length) as watch:
            for index, (variant, pair) in enumerate(zip(variants, plans, strict=True)):
                alone = yield from self._chain(pair[0], variant, vanilla(settings), watch, 2 * index)
                guided = yield from self._chain(pair[1], variant, settings, watch, 2 * index + 1)
                tokens = len(pair[1].prompt.factual_ids)
                outcomes.append(SwapOutcome(variant, alone, guided, _masked_ids(pair[1]) == first, tokens))
                distributions.append(self._distributions(pair, outcomes[-1], request.answer_step))
            request, tokens = replace(request, settings=settings), self._candidates(request, distributions)
            controls = yield from self._controls(request, outcomes, tokens, watch)
            yield self._result(watch.number, request, outcomes, distributions, controls)

    def cancel(self, number: int) -> None:
        """End a running comparison after its current token; one that has ended stays as it is."""
        with self._lock:
            if (watch := self._running.get(in_present(number))) is not None:
                watch.stop.set()

    def at(self, number: int, answer_step: int) -> SwapResult:
        """Another step of a comparison that is still kept; its chains are not run again."""
        kept = self._kept_under(number)
        if answer_step in kept.steps:
            return kept.steps[answer_step]
        request = replace(kept.request, answer_step=answer_step)
        _check(request)
        outcomes = next(iter(kept.steps.values())).outcomes
        plans = self._plans([outcome.variant for outcome in outcomes], request.settings)
        distributions = [
            self._distributions(pair, outcome, answer_step) for pair, outcome in zip(plans, outcomes, strict=True)
        ]
        tokens = self._candidates(request, distributions)
        controls = _drained(self._controls(request, outcomes, tokens, SwapWatch(number, len(outcomes) * 2 + 1, 1)))
        result = self._result(number, request, outcomes, distributions, controls)
        if kept.key:
            self._swaps.write(kept.key, _bytes_of(kept))
        return result

    def store(self, number: int, form: JsonObject) -> str:
        """Store a comparison that is still kept with the form that it was asked by, and give the key of its address."""
        kept = self._kept_under(number)
        key = self._swaps.add(form, _bytes_of(kept))
        with self._lock:
            self._kept[number] = replace(kept, key=key)
        return key

    def stored(self, key: str, answer_step: int | None = None) -> tuple[SwapResult, JsonObject]:
        """A stored comparison and the form that it was asked by, to be gone on with; nothing is computed."""
        record = self._swaps.named(key)
        kept = replace(STORED.validate_python(json.loads(record.data)), key=key)
        with self._lock:
            number = next(self._numbers)
            self._kept[number] = kept
        for step, result in kept.steps.items():
            kept.steps[step] = replace(result, number=number)
        found = kept.steps.get(-1 if answer_step is None else answer_step) or kept.steps[kept.request.answer_step]
        return found, record.form

    def write_csv(self, number: int, answer_step: int, table: SwapTable, folder: Path) -> Path:
        """Write a table of a comparison that is still kept into a folder, atomically, and return its path."""
        name = f"swap-{number}-token-{answer_step + 1}-{table}.csv"
        return write_text(folder / name, swap_csv(self.at(number, answer_step), table))

    def _plans(self, variants: Sequence[Variant], settings: AuditSettings) -> list[tuple[Plan, Plan]]:
        """Each variant planned for vanilla decoding and for the policy."""
        plan = partial(self._planner.plan, prompted(self._host.get(settings.model), settings))
        return [
            (plan(variant.prompt, variant.spans, vanilla(settings)), plan(variant.prompt, variant.spans, settings))
            for variant in variants
        ]

    def _distributions(self, plans: tuple[Plan, Plan], outcome: SwapOutcome, answer_step: int) -> Distributions:
        """The policy's views after its own chain, with the factual one of the model alone after its."""

        def read(plan: Plan, chain: SwapChain) -> Distributions:
            prefix = _prefix(chain, outcome.variant, answer_step)
            work = partial(distributions_at, [plan], prefix)
            return self._host.memory.run(reserved_bytes(plan, len(prefix)), work)[0]

        vanilla, policy = plans
        return {**read(policy, outcome.policy), "factual": read(vanilla, outcome.vanilla)["factual"]}

    def _candidates(self, request: SwapRequest, distributions: Sequence[Distributions]) -> tuple[SwapToken, ...]:
        return candidates_of(distributions, request.top, self._host.get(request.settings.model))

    def _controls(
        self, request: SwapRequest, outcomes: Sequence[SwapOutcome], tokens: Sequence[SwapToken], watch: SwapWatch
    ) -> Generator[SwapProgress, None, SwapControls | None]:
        """The compared token with other words for each group and with other wordings, all after the first text."""
        settings, groups = request.settings, self.groups(request)
        if not groups:
            return None
        rows = tuple(control_variants(request, self._spans(request)))
        before, ids = (
            _prefix(outcomes[0].vanilla, outcomes[0].variant, request.answer_step),
            [t.token_id for t in tokens],
        )
        plan, found = partial(self._planner.plan, prompted(self._host.get(settings.model), settings)), []
        for start in range(0, len(rows), ROWS):
            yield watch.told(2 * len(outcomes), watch.length * start / len(rows), COMPARABLE, settings.policy)
            plans = [plan(row.variant.prompt, row.variant.spans, settings) for row in rows[start : start + ROWS]]
            size = sum(reserved_bytes(each, len(before)) for each in plans)
            read = self._host.memory.run(size, partial(distributions_at, plans, before), watch.waits)
            found += [{view: p[ids] for view, p in views.items()} for views in read]
        return controls_of([group.name for group in groups], rows, found, tokens)

    def _result(
        self,
        number: int,
        request: SwapRequest,
        outcomes: Sequence[SwapOutcome],
        distributions: Sequence[Distributions],
        controls: SwapControls | None,
    ) -> SwapResult:
        result = SwapResult(
            outcomes=tuple(outcomes),
            views=views_of(distributions),
            answer_step=request.answer_step,
            tokens=self._candidates(request, distributions),
            gaps=gaps_between(distributions),
            notes=tuple(swap_notes(request, outcomes)),
            number=number,
            controls=controls,
        )
        with self._lock:
            self._kept.setdefault(number, KeptSwap(request, {})).steps[result.answer_step] = result
        return result

    @contextmanager
    def _watched(self, chains: int, length: int) -> Iterator[SwapWatch]:
        """A comparison from its beginning to its end, however it ends; it is cancelled by its own number."""
        with self._lock:
            watch = SwapWatch(next(self._numbers), chains, length)
            key = in_present(watch.number)
            self._running[key] = watch
        try:
            yield watch
        finally:
            with self._lock:
                del self._running[key]

    def _kept_under(self, number: int) -> KeptSwap:
        """A comparison that is done; of all, the one unused for longest goes first."""
        with self._lock:
            if (kept := self._kept.get(number)) is None:
                raise ServiceError("This comparison is not kept any more; run it again.")
            return kept

    def _chain(
        self, prepared: Plan, variant: Variant, settings: AuditSettings, watch: SwapWatch, done: int
    ) -> Generator[SwapProgress, None, SwapChain]:
        key, steps, finished = object(), tuple[Step, ...](), None
        try:
            while finished is None:
                fits = self._host.memory.budget.has_room(reserved_bytes(prepared, len(steps) + 1))
                label = variant.label if fits else f"{variant.label}{FOR_MEMORY}"
                yield watch.told(done, len(steps), label, settings.policy)
                # Between two tokens the chain is idle, so that nobody waits for whoever reads this stream.
                build = partial(Rollout, prepared, ROOT_PATH, steps, self._host.forwards)
                for attempt in self._host.memory.attempts():
                    with attempt, self._pool.taken(key, build, waiting=watch.waits) as rollout:
                        rollout.step()
                        steps, finished = rollout.steps, rollout.finished
            name = f"{variant.label} · {policy_name(settings.policy)}"
            return SwapChain(
                steps=steps,
                text=prepared.model.continuation_text([step.token_id for step in steps]),
                finished=finished,
                certificate=prepared.certificate.counted(steps).text,
                start=StartAudit(variant.prompt, settings, variant.spans, name),
            )
        finally:
            self._pool.drop({key})


def _drained(work: Generator[object, None, SwapControls | None]) -> SwapControls | None:
    """What work comes to of whose progress nobody is told."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return cast(SwapControls | None, ended.value)


def _check(request: SwapRequest) -> None:
    if request.max_new_tokens < 1 or request.answer_step < 0:
        raise ServiceError("Chains have at least one token, and steps count from the first; correct the numbers.")
    if not 1 <= request.top <= MOST_CANDIDATES:
        raise ServiceError(f"{request.top} candidates a variant cannot be shown; choose 1 to {MOST_CANDIDATES}.")


def _prefix(chain: SwapChain, variant: Variant, answer_step: int) -> list[int]:
    if len(chain.steps) <= answer_step:
        raise ServiceError(
            f"The text of “{variant.label}” ends after {len(chain.steps)} tokens, before the one that is compared "
            f"({answer_step + 1}); compare an earlier one."
        )
    return [step.token_id for step in chain.steps[:answer_step]]


def _masked_ids(prepared: Plan) -> tuple[tuple[int, ...], ...]:
    """What the masked branches read; without one, the masked prompt all the same."""
    rows = tuple(tuple(branch.input_ids) for branch in prepared.policy.branches(prepared.prompt)[1:])
    return rows or (prepared.prompt.masked_ids,)
