"""The effects of marked words and of their controls, step by step, along a text that is held fixed.

The effect of a word at a step is the total variation between the next-token distributions with the word shown and with
it masked, after the same tokens, without what the word's own tokens gain: a model that repeats whatever word it reads
would otherwise be said to depend on each. Beside it is kept by how much the word changes the log-probability of the
token that was written. All rows are teacher-forced in batched forwards that share what comes before the word.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

import torch
from torch import Tensor

from coft_core.controls import NEUTRAL, OTHERS
from coft_core.controls.placebos import FamilyPlacebos, Pair, Placebo, placebos_of
from coft_core.controls.result import Controls, Effects, FamilyControls
from coft_core.controls.words import NeutralWords, shipped_words
from coft_core.decode.plan import Plan
from coft_core.errors import InvalidInputError
from coft_core.model.forced import ForcedItem, ForcedScorer, OwnRoom, Room
from coft_core.policies.bounds import branch_ends
from coft_core.policies.fusion import at_least_float32

ROWS = 48
"""Rows of a batch at most."""
Result = TypeVar("Result")
EFFECT_DIGITS, RATIO_DIGITS = 5, 4
"""Digits after the point that are kept; p-values and e-values are computed from the kept numbers."""


def controls_of(
    plan: Plan,
    tokens: Sequence[int],
    *,
    neutral: int = NEUTRAL,
    others: int = OTHERS,
    words: NeutralWords | None = None,
    watched: Sequence[Sequence[int]] = (),
    room: Room | None = None,
    told: Callable[[float], object] | None = None,
) -> Controls:
    """Measure the controls of a chain; the chain's tokens stay as they are.

    Args:
        plan: The plan of the prompt; its mask and temperature matter.
        tokens: The chain.
        neutral: Comparable words at most; 0 takes none.
        others: Other words of the prompt at most.
        words: Neutral words; None takes the shipped ones.
        watched: Tokens at each step whose probabilities with comparable words are wanted.
        room: Memory for keys and values that is shared with others.
        told: Told the share that is done after each batch; an error that it raises ends the measurement.

    Raises:
        PromptTooLongError: Prompt and chain exceed the model's context.
    """
    return ended(measuring(plan, tokens, neutral, others, words, watched, room), told)


def ended(work: Generator[float, None, Result], told: Callable[[float], object] | None = None) -> Result:
    """The result of work that yields how much of it is done."""
    while True:
        try:
            share = next(work)
        except StopIteration as end:
            return cast("Result", end.value)
        if told is not None:
            told(share)


def measuring(
    plan: Plan,
    tokens: Sequence[int],
    neutral: int = NEUTRAL,
    others: int = OTHERS,
    words: NeutralWords | None = None,
    watched: Sequence[Sequence[int]] = (),
    room: Room | None = None,
) -> Generator[float, None, Controls]:
    """As :func:`controls_of`, one batch at a time: yields the share that is done and returns the controls."""
    if not tokens:
        raise InvalidInputError("The text has no tokens; take at least one step first.")
    families = placebos_of(plan, neutral, others, shipped_words() if words is None else words)
    pairs = list(dict.fromkeys(pair for family in families for pair in _pairs(family)))
    ids = [tuple(watched[step]) if step < len(watched) else () for step in range(len(tokens))]
    measure = _Measure(plan, tuple(tokens), ids)
    batches = list(_batches(pairs, tuple(tokens)))
    for number, (item, batch) in enumerate(batches, start=1):
        (room or OwnRoom()).run(measure.scorer.memory_size([item]), partial(measure.run, item, batch))
        yield number / len(batches)
    found = Controls(tuple(measure.family(family) for family in families), _key(plan))
    return replace(found, evidence=found.computed())


def _key(plan: Plan) -> str:
    """What names the prompt: the same model, text and masked tokens give the same, whatever the policy."""
    named = (plan.model.weights_digest, plan.prompt.factual_text, plan.prompt.positions)
    return hashlib.blake2b(repr(named).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _pairs(family: FamilyPlacebos) -> Iterator[Pair]:
    yield family.pair
    yield from (placebo.pair for placebo in (*family.neutral, *family.others))


def _batches(pairs: Sequence[Pair], tokens: tuple[int, ...]) -> Iterator[tuple[ForcedItem, list[Pair]]]:
    """Pairs of one length that are run together, and their rows, each once.

    Those that part late from the first one come first, and one begins a new batch where it would shorten the beginning
    that a batch shares by more than running it there saves.
    """

    def item(batch: Sequence[Pair]) -> ForcedItem:
        return ForcedItem(tuple(dict.fromkeys(row for pair in batch for row in pair)), tokens)

    def computed(batch: Sequence[Pair]) -> int:
        rows = item(batch)
        return rows.shared + len(rows.prompts) * (rows.length - rows.shared)

    by_length: defaultdict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_length[len(pair[0])].append(pair)
    for alike in by_length.values():
        batch: list[Pair] = []
        for pair in sorted(alike, key=lambda pair: -item([alike[0], pair]).shared):
            wider = [*batch, pair]
            if batch and (len(item(wider).prompts) > ROWS or computed(wider) > computed(batch) + computed([pair])):
                yield item(batch), batch
                wider = [pair]
            batch = wider
        yield item(batch), batch


class _Measure:
    """Runs batches and keeps the effect of each pair."""

    def __init__(self, plan: Plan, tokens: tuple[int, ...], watched: Sequence[tuple[int, ...]]) -> None:
        self._plan, self._tokens, self._watched = plan, tokens, watched
        self.scorer = ForcedScorer(plan.model)
        self._found: dict[Pair, tuple[list[float], list[float], list[list[list[float]]]]] = {}

    @torch.inference_mode()
    def run(self, item: ForcedItem, batch: Sequence[Pair]) -> None:
        """Run a batch."""
        device, places = self._plan.model.device, {row: place for place, row in enumerate(item.prompts)}
        shown, masked = (torch.tensor([places[pair[side]] for pair in batch], device=device) for side in (0, 1))  # (P,)
        tokens = torch.tensor(self._tokens, device=device)  # (T,)
        widest = max(map(len, self._watched), default=0)
        watched = torch.tensor([[*ids, *[0] * (widest - len(ids))] for ids in self._watched], device=device).long()
        steps, temperature = len(self._tokens), self._plan.policy.sampling.temperature
        own = [sorted({token for token, other in zip(*pair, strict=True) if token != other}) for pair in batch]
        effects = torch.empty(steps, len(batch), device=device)  # (T, P)
        ratios = torch.empty_like(effects)
        seen = torch.empty(2, steps, len(batch), widest, device=device)  # the least and the most
        for index, logits in self.scorer.logits([item]):
            # Of tokens that an engine does not return both ends are known; any other has one probability.
            if self._plan.model.most_likely is None:
                low = high = torch.log_softmax(at_least_float32(logits) / temperature, dim=-1)  # (n, B, V)
            else:
                low, high = branch_ends(logits, temperature, self._plan.model.most_likely)
            ratios[index] = _ratios(low, high, tokens[index], shown, masked).float()
            least = low.exp_()
            most = least if high is low else high.exp_()
            effects[index] = _variation(least, most, shown, masked, own)
            if widest:
                wanted = watched[index][:, None, :].expand(-1, len(batch), -1)  # (n, P, W)
                seen[:, index] = torch.stack([_gathered(p, shown, wanted) for p in (least, most)])
        for place, pair in enumerate(batch):
            self._found[pair] = effects[:, place].tolist(), ratios[:, place].tolist(), seen[:, :, place].tolist()

    def family(self, placebos: FamilyPlacebos) -> FamilyControls:
        """What was found of a family."""
        found = FamilyControls(
            family=placebos.family,
            marked=self._effects(", ".join(placebos.words), placebos.pair),
            fits=placebos.fits,
            neutral=tuple(self._of(placebo) for placebo in placebos.neutral),
            others=tuple(self._of(placebo) for placebo in placebos.others),
            ranges=tuple(self._ranges(placebos.neutral)),
        )
        return replace(found, p_values=found.computed())

    def _of(self, placebo: Placebo) -> Effects:
        return self._effects(placebo.word, placebo.pair)

    def _effects(self, word: str, pair: Pair) -> Effects:
        effects, ratios, _ = self._found[pair]
        return Effects(
            word,
            tuple(round(value, EFFECT_DIGITS) for value in effects),
            tuple(round(value, RATIO_DIGITS) for value in ratios),
        )

    def _ranges(self, neutral: Sequence[Placebo]) -> Iterator[tuple[tuple[float, float], ...]]:
        if not neutral or not any(self._watched):
            return
        rows = [self._found[placebo.pair][2] for placebo in neutral]
        for step, ids in enumerate(self._watched):
            columns = ([(row[0][step][place], row[1][step][place]) for row in rows] for place in range(len(ids)))
            ends = ((min(low for low, _ in column), max(high for _, high in column)) for column in columns)
            yield tuple((round(low, EFFECT_DIGITS), round(high, EFFECT_DIGITS)) for low, high in ends)


def _ratios(low: Tensor, high: Tensor, tokens: Tensor, shown: Tensor, masked: Tensor) -> Tensor:
    """By how much words change a token's log-probability, ``(n, P)`` of ends ``(n, B, V)``: what is nearest to 0."""
    places = tokens[:, None, None].expand(-1, low.shape[1], 1)  # (n, B, 1)
    least, most = (end.gather(-1, places)[..., 0] for end in (low, high))  # (n, B) each
    return torch.maximum(least[:, shown] - most[:, masked], (most[:, shown] - least[:, masked]).clamp_max(0))


def _variation(least: Tensor, most: Tensor, shown: Tensor, masked: Tensor, own: Sequence[Sequence[int]]) -> Tensor:
    """What words move to tokens other than their own, ``(n, P)`` of ``(n, B, V)``; a pair at a time to save memory.

    With two ends it is the least, which is as good a score to rank words by.
    """
    found = []
    for a, b, tokens in zip(shown.tolist(), masked.tolist(), own, strict=True):
        gained = (least[:, a] - most[:, b]).clamp_(min=0)  # (n, V)
        gained[:, list(tokens)] = 0
        found.append(gained.sum(-1))
    return torch.stack(found, dim=1).float()


def _gathered(p: Tensor, rows: Tensor, wanted: Tensor) -> Tensor:
    """Probabilities of some tokens in some rows, ``(n, P, W)``."""
    return torch.stack(
        [p[:, row].gather(-1, wanted[:, place]) for place, row in enumerate(rows.tolist())], dim=1
    ).float()
