"""Reads a suite's asks under several policies at once: likelihoods of given texts, and continuations.

Texts are read in batches of similar lengths, each prompt once for all its texts, and every branch once for all
policies that read it: COFT at ten fusion weights costs two readings. Continuations share their forwards among prompts.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from coft_core.decode.loop import ROOT_PATH, Chain, continue_together, write
from coft_core.decode.plan import Plan, check_models, needed_models, with_scorers
from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchSpec, attached
from coft_core.model.forced import ForcedScorer, ForcedTexts, Limits, OwnRoom, Room, forced_batches
from coft_core.model.group import BranchGroup
from coft_core.model.language_model import LanguageModel
from coft_core.model.slots import rows_size
from coft_core.policies.base import Past, Policy, Views
from coft_core.policies.sampling import choose, keyed_uniform
from coft_core.scorers.base import ToxicityScorer
from coft_core.suites.base import Answer, Ask, Choices, Encoding, Likelihood, Scored, Unread, Writing, Written
from coft_core.text.detection import SpanDetector, default_detector
from coft_core.text.masking import (
    MaskedPrompt,
    MaskSettings,
    continuation_ids,
    harness_ids,
    keep_whitelisted,
    mask_prompt,
)
from coft_core.text.thinking import ChainThinking, Divided, ThinkingMarks, thinking_of
from coft_core.text.turns import framed
from coft_core.types import Certificate, Span

TOKEN_BUDGET = {"cpu": 4096}
"""Padded tokens of one forward, by type of device."""

ACCELERATOR_TOKEN_BUDGET = 16384

HELD_LOGITS = {"cpu": 1 << 26}
"""Logits of given texts that are held at a time, over all branches, by type of device."""

ACCELERATOR_HELD_LOGITS = 1 << 29

PADDING = 1.3
"""How much more a batch of given texts may compute than they would one by one: to pad prompts of other lengths takes
less time than to read many small batches, on a CPU too."""

VIEWED_LOGITS = 1 << 21
"""Logits of one branch from which views are made at a time."""

JOINED = "The tokenizer joins a text with the end of its prompt, so that no token is left to score; encode them apart."
"""Why choices cannot be read where prompt and text are encoded together."""

STOP_MARGIN = 4
"""Tokens before a stop that are read with it, since the first of a part may read otherwise than in the whole."""

BATCH_ROWS = 64
"""Rows of prompts that are continued together, all branches counted."""


class Reader:
    """A model with what policies on it need; reads asks under any of them."""

    def __init__(
        self,
        model: LanguageModel,
        models: Mapping[str, LanguageModel] | None = None,
        scorers: Mapping[str, ToxicityScorer] | None = None,
        detector: SpanDetector | None = None,
        room: Room | None = None,
        marks: ThinkingMarks | None = None,
        encoding: Encoding = "together",
    ) -> None:
        """Nothing runs yet."""
        self._marks, self._encoding = marks, encoding
        self._model = model.dated()
        self._models, self._scorers = models, scorers
        self._detector, self._room = detector or default_detector(), room or OwnRoom()

    def read(self, asks: Sequence[Ask], policies: Sequence[Policy], seeds: Sequence[int]) -> list[list[Answer]]:
        """Answers of every policy to every ask."""
        prepared = [self._prepared(policy) for policy in policies]
        answers: dict[tuple[int, int], Answer] = {}
        texts: list[_Texts] = []
        chains: list[_Continued] = []
        for row, (given, seed) in enumerate(zip(asks, seeds, strict=True)):
            ask = self._bordered(given)
            for column, planned in enumerate(self._plans(ask, prepared, seed)):
                place = (column, row)
                if isinstance(ask, Choices):
                    tokens = ask.tokens or tuple(
                        encoded(self._model, planned.prompt, text, self._encoding) for text in ask.texts
                    )
                    if not all(tokens):
                        answers[place] = Unread(JOINED)
                        continue
                    reading: _Texts | _Continued = _Texts(place, planned, tokens)
                else:
                    ids = planned.prompt.factual_ids
                    reading = _Continued(place, planned, ask, thinking_of(self._model.tokenizer, ids, self._marks))
                if too_long := self._too_long(reading):
                    answers[place] = Unread(too_long)
                elif isinstance(reading, _Texts):
                    texts.append(reading)
                else:
                    chains.append(reading)
        answers.update(self._scored(texts))
        answers.update(self._written(chains))
        return [[answers[column, row] for row in range(len(asks))] for column in range(len(policies))]

    def _prepared(self, policy: Policy) -> _Prepared:
        model = self._model
        models = needed_models(policy, model) if self._models is None else check_models(policy, model, self._models)
        ready = with_scorers(policy, self._scorers, str(model.device))
        return _Prepared(ready, models, policy.certificate(model, self._detector.version))

    def _plans(self, ask: Ask, prepared: Sequence[_Prepared], seed: int) -> Iterator[Plan]:
        """The ask under each policy; what policies mask alike is masked once."""
        ask = self._framed(ask)
        spans = ask.spans if ask.spans is not None else self._detector.detect(ask.prompt) if ask.prompt.strip() else ()
        masked: dict[tuple[MaskSettings, bool], MaskedPrompt] = {}
        for ready in prepared:
            policy, mask = ready.policy, ready.policy.mask
            if (key := (mask, policy.needs_masked)) not in masked:
                masked[key] = self._masked(ask.prompt, (*spans, *ask.also), mask, policy.needs_masked)
            prompt = masked[key]
            bind = partial(policy.bound, self._model, ready.models, prompt)
            size = policy.writing_size(self._model, ready.models, ask.prompt)
            bound = self._room.run(size, bind) if size else bind()
            yield Plan(self._model, bound, prompt, ready.certificate, seed, models=ready.models)

    def _bordered(self, ask: Ask) -> Ask:
        together = isinstance(ask, Choices) and ask.tokens is None and self._encoding == "together"
        return bordered(ask) if together and not self._model.chat else ask

    def _framed(self, ask: Ask) -> Ask:
        """The ask in the model's frame."""
        frame = self._model.prompting.frame
        if not frame.adds:
            return ask
        detect = self._detector.detect
        prompt, spans = framed(ask.prompt, ask.spans, frame, detect)
        _, also = framed(ask.prompt, ask.also, frame, lambda _: ())
        return replace(ask, prompt=prompt, spans=spans, also=also or ())

    def _masked(self, text: str, spans: Sequence[Span], mask: MaskSettings, required: bool) -> MaskedPrompt:
        if not text.strip() and text not in (self._model.prompting.kept or {}):
            return start_prompt(self._model)
        kept = keep_whitelisted(text, spans, mask.whitelist)
        return mask_prompt(
            self._model.tokenizer, text, kept, mask.sentinel, mask.mode, mask.hint, self._model.prompting, required
        )

    def _too_long(self, reading: _Texts | _Continued) -> str:
        length, most = reading.length, self._model.context_length
        return "" if length <= most else f"It has {length:,} tokens and the model takes {most:,}."

    # Likelihoods of given texts.

    def _scored(self, asked: Sequence[_Texts]) -> Iterator[tuple[tuple[int, int], Scored]]:
        """Answers in any order; what one ask needs of several policies is held together."""
        held = HELD_LOGITS.get(self._model.device.type, ACCELERATOR_HELD_LOGITS) // self._model.vocabulary_size
        by_row = {row: list(group) for row, group in groupby(sorted(asked, key=_row), key=_row)}
        chunk: list[_Texts] = []
        positions = 0
        for row in sorted(by_row, key=lambda row: (by_row[row][0].length, row)):
            needed = len({key for texts in by_row[row] for key in texts.keys}) * by_row[row][0].positions
            if chunk and positions + needed > held:
                yield from self._chunk(chunk)
                chunk, positions = [], 0
            chunk += by_row[row]
            positions += needed
        if chunk:
            yield from self._chunk(chunk)

    @torch.inference_mode()
    def _chunk(self, asked: Sequence[_Texts]) -> Iterator[tuple[tuple[int, int], Scored]]:
        logits = self._logits(asked)
        by_policy = groupby(sorted(asked, key=lambda texts: texts.place), key=lambda texts: texts.place[0])
        for _, group in by_policy:
            alike = list(group)
            for texts, likelihoods in zip(alike, _likelihoods(alike, logits), strict=True):
                yield texts.place, Scored(likelihoods, len(texts.planned.prompt.positions))

    def _logits(self, asked: Sequence[_Texts]) -> dict[Hashable, Tensor]:
        """Logits before every token of every text, ``(C, L, V)`` by branch and texts."""
        wanted = {key: row for texts in asked for key, row in zip(texts.keys, texts.rows, strict=True)}
        limits = Limits.of(self._model.device)
        waste = max(limits.waste, PADDING)
        budget = TOKEN_BUDGET.get(self._model.device.type, ACCELERATOR_TOKEN_BUDGET)
        found: dict[Hashable, Tensor] = {}
        by_part: dict[tuple[int, Any], list[tuple[Hashable, _Row]]] = {}
        for key, row in wanted.items():
            by_part.setdefault((id(row.model.module), row.branch.hooks), []).append((key, row))
        for (_, hooks), rows in by_part.items():
            model = rows[0][1].model
            model.require_all_tokens("An evaluation of given answers")
            items = [ForcedTexts.of(row.branch.input_ids, row.texts) for _, row in rows]
            scorer = ForcedScorer(model, limits)
            with attached(model.module, hooks):
                for batch in forced_batches(items, budget, None, waste, scorer.fitting(self._room.most)):
                    chosen = [items[place] for place in batch]
                    whole = self._room.run(scorer.memory_size(chosen), partial(scorer.whole, chosen))  # (N, C, V)
                    for place, part in zip(batch, torch.split(whole, [item.scored for item in chosen]), strict=True):
                        found[rows[place][0]] = part.transpose(0, 1)  # (C, L, V)
        return found

    # Continuations.

    def _written(self, asked: Sequence[_Continued]) -> Iterator[tuple[tuple[int, int], Written | Unread]]:
        """Answers in any order; prompts with the same branches under one policy share their forwards."""

        def alike(chain: _Continued) -> tuple[int, tuple[str, ...], bool, int]:
            return chain.place[0], chain.names, chain.greedy, chain.length

        for _, group in groupby(sorted(asked, key=alike), key=lambda chain: alike(chain)[:3]):
            chains = list(group)
            size = max(BATCH_ROWS // len(chains[0].names), 1)
            for start in range(0, len(chains), size):
                batch = chains[start : start + size]
                rows = len(batch) * len(batch[0].names)
                longest = max(chain.length + chain.most_tokens for chain in batch)
                needed = rows_size(self._model, rows, min(longest, self._model.context_length))
                yield from self._room.run(needed, partial(_continued, batch))


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A policy with what it runs besides the audited model, and what it may claim."""

    policy: Policy
    models: Mapping[str, LanguageModel]
    certificate: Certificate


def bordered(ask: Ask) -> Ask:
    """Choices whose white space at the end of the prompt begins each text instead, as in lm-evaluation-harness."""
    prompt = ask.prompt.rstrip()
    if not isinstance(ask, Choices) or prompt == ask.prompt:
        return ask

    def within(spans: Sequence[Span]) -> tuple[Span, ...]:
        return tuple(replace(s, end=min(s.end, len(prompt))) for s in spans if s.start < len(prompt))

    texts = tuple(f"{ask.prompt[len(prompt) :]}{text}" for text in ask.texts)
    spans = None if ask.spans is None else within(ask.spans)
    return replace(ask, prompt=prompt, texts=texts, spans=spans, also=within(ask.also))


def encoded(model: LanguageModel, prompt: MaskedPrompt, text: str, encoding: Encoding) -> tuple[int, ...]:
    """Tokens of a text behind a prompt."""
    return (harness_ids if encoding == "together" else continuation_ids)(model, prompt, text)


def start_prompt(model: LanguageModel) -> MaskedPrompt:
    """What stands before a text that begins a document: the tokenizer's start token, or its end token without one."""
    token = model.tokenizer.bos_token_id
    token = token if token is not None else model.tokenizer.eos_token_id
    if token is None:
        raise InvalidInputError(
            f"The tokenizer of {model.name} has no start token and no end token, so that the beginning of a text "
            "cannot be read; choose another model for this suite."
        )
    return MaskedPrompt("", "", (int(token),), (int(token),), (), (), (), ((0, 0),), "", None, "hard")


@dataclass(frozen=True, slots=True)
class _Row:
    """A branch with the texts after it."""

    model: LanguageModel
    branch: BranchSpec
    texts: tuple[tuple[int, ...], ...]

    @property
    def key(self) -> Hashable:
        return (id(self.model.module), self.branch.hooks, self.branch.input_ids, self.texts)


class _Texts:
    """Texts after one prompt under one policy."""

    def __init__(self, place: tuple[int, int], planned: Plan, texts: tuple[tuple[int, ...], ...]) -> None:
        self.place, self.planned, self.texts = place, planned, texts
        models = planned.all_models
        branches = planned.policy.branches(planned.prompt)
        self.names = tuple(branch.name for branch in branches)
        self.rows = tuple(_Row(models[branch.model], branch, texts) for branch in branches)
        self.keys = tuple(row.key for row in self.rows)

    @property
    def positions(self) -> int:
        """Positions at which a branch has logits, those that pad shorter texts included."""
        return len(self.texts) * max(len(tokens) for tokens in self.texts)

    @property
    def length(self) -> int:
        """Tokens of the longest branch with its longest text."""
        longest = max(len(row.branch.input_ids) for row in self.rows)
        return longest + max(len(tokens) for tokens in self.texts)


def _row(texts: _Texts) -> int:
    return texts.place[1]


@dataclass(frozen=True, slots=True)
class _Place:
    """One token of one text: which ask of a batch, which of its texts, at which position."""

    ask: int
    text: int
    index: int


def _likelihoods(asked: Sequence[_Texts], logits: Mapping[Hashable, Tensor]) -> list[tuple[Likelihood, ...]]:
    """Likelihoods of all texts of asks under one policy."""
    places = [
        _Place(number, text, index)
        for number, texts in enumerate(asked)
        for text, tokens in enumerate(texts.texts)
        for index in range(len(tokens))
    ]
    numbers: dict[_Place, tuple[float, ...]] = {}
    memories: dict[tuple[int, int], Any] = {}
    for alike in _viewed_together(asked, places):
        first = asked[alike[0].ask]
        policy, index = first.planned.policy, alike[0].index
        rows = torch.stack([_stacked(asked[at.ask], at, logits) for at in alike])  # (G, B, V)
        tokens = torch.tensor([asked[at.ask].texts[at.text][at.index] for at in alike], device=rows.device)  # (G,)
        if policy.reads_rowwise:
            thresholds = [policy.threshold(at.index)[0] for at in alike]
            log_tau = torch.tensor(thresholds, dtype=torch.float32, device=rows.device)[:, None]  # (G, 1)
            views = policy.views_at(rows, log_tau)
        else:
            pasts = [_past(asked[at.ask], at, memories.get((at.ask, at.text))) for at in alike]
            views = policy.views(rows, index, first.names, pasts)
            log_tau = _threshold_of(views, len(alike), rows.device)
        if policy.looks_back:
            for at, row, token in zip(alike, rows, tokens.tolist(), strict=True):
                memory = memories.get((at.ask, at.text))
                memories[at.ask, at.text] = policy.remember(memory, row, token, first.names)
        numbers.update(zip(alike, _numbers(views, tokens, log_tau), strict=True))
    return [
        tuple(
            _summed(texts.planned.model, tokens, [numbers[_Place(number, text, index)] for index in range(len(tokens))])
            for text, tokens in enumerate(texts.texts)
        )
        for number, texts in enumerate(asked)
    ]


def _viewed_together(asked: Sequence[_Texts], places: Sequence[_Place]) -> Iterator[list[_Place]]:
    """Places whose views can be made at once, in the order of their steps: policies may carry something on."""
    policy = asked[0].planned.policy
    same = _same_policy([texts.planned for texts in asked])

    def alike(at: _Place) -> tuple[Any, ...]:
        names = asked[at.ask].names
        return (0, names, 0) if policy.reads_rowwise else (at.index, names, 0 if same else at.ask)

    for _, group in groupby(sorted(places, key=lambda at: (alike(at), at.ask, at.text, at.index)), key=alike):
        together = list(group)
        width = max(1, VIEWED_LOGITS // asked[0].planned.model.vocabulary_size)
        for start in range(0, len(together), width):
            yield together[start : start + width]


def _same_policy(plans: Sequence[Plan]) -> bool:
    """Whether the policy is the same for all prompts, and not bound to each."""
    return all(planned.policy is plans[0].policy or planned.policy == plans[0].policy for planned in plans)


def _stacked(texts: _Texts, at: _Place, logits: Mapping[Hashable, Tensor]) -> Tensor:
    """Logits of all branches at a place, ``(B, V)``; models may pad their vocabularies differently."""
    rows = [logits[row.key][at.text, at.index] for row in texts.rows]  # B of (V,)
    width = min(row.shape[-1] for row in rows)
    dtype = rows[0].dtype if all(row.dtype == rows[0].dtype for row in rows) else torch.float32
    return torch.stack([row[:width].to(rows[0].device, dtype) for row in rows])


def _past(texts: _Texts, at: _Place, memory: Any) -> Past:
    return Past(texts.planned.model, texts.planned.prompt, texts.texts[at.text][: at.index], memory)


def _threshold_of(views: Views, count: int, device: torch.device) -> Tensor:
    """Log-threshold of a step, ``(G, 1)``: with several, the highest; ``-inf`` where there is none."""
    log_tau = max((family.log_tau for family in views.families), default=views.log_tau)
    return torch.full((count, 1), -math.inf if math.isnan(log_tau) else log_tau, device=device)


def _numbers(views: Views, tokens: Tensor, log_tau: Tensor) -> list[tuple[float, ...]]:
    """Log-probability, the same with a refused token at the threshold, log-mass of the set; refused, empty, greedy.

    The last number of a row is the likeliest fused token.
    """
    log_p = views.log_p_fused  # (G, V)
    own = log_p.gather(-1, tokens[:, None])  # (G, 1)
    likeliest = log_p.argmax(-1, keepdim=True)  # (G, 1)
    if views.certified is None:
        greedy = likeliest == tokens[:, None]
        nothing = torch.zeros_like(own)
        columns = [own, own, nothing, nothing, nothing, greedy.to(own)]
    else:
        empty = ~views.certified.any(-1, keepdim=True)  # (G, 1)
        within = torch.where(views.certified | empty, log_p, -torch.inf)  # (G, V)
        refused = ~views.certified.gather(-1, tokens[:, None]) & ~empty  # (G, 1)
        # A method that refuses by something else than a threshold has the least that it admits in its place.
        least = torch.where(views.certified, log_p, torch.inf).amin(-1, keepdim=True)  # (G, 1)
        floor = torch.where(torch.isfinite(log_tau), log_tau.to(own), least)
        mass = torch.where(empty, 0.0, torch.logsumexp(within, -1, keepdim=True))  # (G, 1)
        greedy = within.argmax(-1, keepdim=True) == tokens[:, None]
        columns = [own, torch.where(refused, floor, own), mass, refused.to(own), empty.to(own), greedy.to(own)]
    return [tuple(row) for row in torch.cat([*(own.double() for own in columns), likeliest], dim=-1).tolist()]


def _summed(model: LanguageModel, tokens: Sequence[int], rows: Sequence[tuple[float, ...]]) -> Likelihood:
    """Sums over a text's tokens, to a millionth of a nat: beyond that they depend on how batches were laid out."""
    *sums, _ = zip(*rows, strict=True)
    log_p, floored, log_mass, refused, empty, greedy = (math.fsum(column) for column in sums)
    fallbacks = tuple(
        (model.continuation_text(tokens[:place]), model.continuation_text((*tokens[:place], int(row[-1]))))
        for place, row in enumerate(rows)
        if row[4]
    )
    return Likelihood(
        len(rows), round(log_p, 6), round(floored, 6), round(log_mass, 6), int(refused), int(empty),
        greedy == len(rows), fallbacks,
    )  # fmt: skip


class _Continued(Chain["_Token"]):
    """A prompt that is continued under one policy."""

    def __init__(
        self, place: tuple[int, int], planned: Plan, ask: Writing, thinking: ChainThinking | None = None
    ) -> None:
        branches = planned.policy.branches(planned.prompt)
        super().__init__(planned.all_models, branches, planned.model.end_token_ids, ask.most_tokens)
        self.place, self.planned, self.most_tokens, self._stops = place, planned, ask.most_tokens, ask.stops
        self.greedy, self.cuts, self._thinking = ask.greedy, ask.cuts, thinking
        self.names = tuple(branch.name for branch in self.branches)
        self.begin()

    def begin(self) -> None:
        """Forget what is written."""
        self.steps = ()
        self.memory: Any = None
        self.stop: int | None = None
        """Where the first stop begins in the text; None where there is none."""

    @property
    def length(self) -> int:
        """Tokens of the longest branch with one more."""
        return max(len(branch.input_ids) for branch in self.branches) + 1

    @property
    def divided(self) -> Divided:
        """What is written: thinking and answer."""
        return self._divided(self.tokens)

    def _divided(self, tokens: Sequence[int]) -> Divided:
        model = self.planned.model
        if self._thinking is None:
            return Divided("", model.continuation_text(tokens), True)
        texts = [model.token_text(token) for token in tokens]
        return self._thinking.divided(tokens, texts, model.continuation_text)

    def _fallbacks(self, answer: str) -> Iterator[tuple[int, int]]:
        """Between which characters of the answer each token without a certificate is; not of thinking."""
        for place, step in enumerate(self.steps):
            if step.empty:
                start, end = (len(self._divided(self.tokens[:count]).answer) for count in (place, place + 1))
                if start < end <= len(answer):
                    yield start, end

    @property
    def finished(self) -> str | None:
        """As every chain, or ``"stop"``."""
        return super().finished or (None if self.stop is None else "stop")

    def remembered(self, step: _Token, logits: Tensor) -> Any:
        """What the policy carries on."""
        policy = self.planned.policy
        return policy.remember(self.memory, logits, step.token_id, self.names) if policy.looks_back else None

    def take(self, step: _Token, memory: Any) -> None:
        """Write a token."""
        super().take(step, memory)
        self.memory = memory
        if self._stops and self._may_have_stopped:
            text = self.divided.answer
            self.stop = min((text.find(stop) for stop in self._stops if stop in text), default=None)

    @property
    def _may_have_stopped(self) -> bool:
        """Whether a stop stands in the newest tokens; to look through the whole text at each takes ever longer."""
        longest = max(len(stop) for stop in self._stops)
        newest = self.planned.model.continuation_text(self.tokens[-longest - STOP_MARGIN :])
        return any(stop in newest for stop in self._stops)

    def answer(self) -> Written | Unread:
        """What is written, up to a stop; thinking that did not end has no answer."""
        divided = self.divided
        if not divided.ended:
            return Unread(
                f"The thinking did not end within {self.most_tokens:,} tokens, so there is no answer.", divided.thinking
            )
        shares = [step.share for step in self.steps if step.share is not None]
        text = divided.answer[: self.stop]
        return Written(
            text,
            len(self.steps),
            "stop" if self.stop is not None else self.finished or "",
            tuple(index for index, step in enumerate(self.steps) if step.empty),
            round(math.fsum(shares) / len(shares), 9) if shares else None,
            len(self.planned.prompt.positions),
            divided.thinking,
            tuple(self._fallbacks(text)),
            tuple((count, min(len(self._divided(self.tokens[:count]).answer), len(text))) for count in self.cuts),
        )


@dataclass(frozen=True, slots=True)
class _Token:
    """A token that was written; ``share`` is the certified share of the vocabulary."""

    token_id: int
    empty: bool
    share: float | None


@torch.inference_mode()
def _continued(chains: Sequence[_Continued]) -> list[tuple[tuple[int, int], Written | Unread]]:
    """Continue prompts with the same branches under one policy to their ends."""
    for chain in chains:
        chain.begin()
    continue_together(chains, _one_step)
    return [(chain.place, chain.answer()) for chain in chains]


def _one_step(group: BranchGroup, chains: Sequence[_Continued]) -> None:
    logits = group.logits()  # (G * B, V)
    write(group, chains, logits, _tokens(chains, logits, group.generated))


def _tokens(chains: Sequence[_Continued], logits: Tensor, step: int) -> list[_Token]:
    """What the policy writes at one step of G chains; one transfer to the host."""
    rows = logits.view(len(chains), -1, logits.shape[-1])  # (G, B, V)
    views = _views(chains, rows, step)
    uniform = [keyed_uniform(chain.planned.seed, ROOT_PATH, step) for chain in chains]
    draws = torch.tensor(uniform, dtype=torch.float64, device=logits.device)
    columns = []
    for view, places in views:
        first = chains[places[0]]
        choice = choose(view.log_p_fused, view.certified, first.planned.policy.sampling, draws[places], first.greedy)
        share = torch.full_like(draws[places], torch.nan)
        if view.certified is not None:
            share = view.certified.double().mean(-1)
        columns.append(torch.stack([choice.token_ids.double(), choice.fallback.double(), share], dim=-1))
    order = [place for _, places in views for place in places]
    numbers = dict(zip(order, torch.cat(columns).tolist(), strict=True))
    return [
        _Token(int(token), bool(empty), None if math.isnan(share) else share)
        for token, empty, share in (numbers[place] for place in range(len(chains)))
    ]


def _views(chains: Sequence[_Continued], rows: Tensor, step: int) -> list[tuple[Views, list[int]]]:
    """Views of chains under a policy that is the same for all, at once; under one that is bound to each, one by one."""
    same = _same_policy([chain.planned for chain in chains])
    groups = [list(range(len(chains)))] if same else [[place] for place in range(len(chains))]

    def past(chain: _Continued) -> Past:
        return Past(chain.planned.model, chain.planned.prompt, chain.tokens, chain.memory)

    return [
        (
            chains[places[0]].planned.policy.views(
                rows[places], step, chains[0].names, [past(chains[place]) for place in places]
            ),
            places,
        )
        for places in groups
    ]
