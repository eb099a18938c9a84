"""Policies inside ``model.generate`` of transformers, as a decoding loop of their own (``custom_generate``)."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerationMixin

from coft_core.decode.decide import NextSteps
from coft_core.decode.loop import PlannedChain, continue_together, write
from coft_core.decode.plan import Plan, plan
from coft_core.errors import InvalidInputError
from coft_core.model.group import BranchGroup
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import wrap_model
from coft_core.policies.base import FACTUAL, Policy
from coft_core.text.detection import SpanDetector
from coft_core.text.given import prompt_of_ids
from coft_core.text.rendering import Rendering
from coft_core.types import Run, Span

SAMPLING = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)
"""Processors that do what a policy's own sampling controls do."""


@dataclass
class GenerateOutput(GenerateDecoderOnlyOutput):
    """What ``generate`` returns with ``return_dict_in_generate``, with one run a row.

    ``scores`` are log-probabilities of the distribution that each token was drawn from, before the sampling controls,
    ``-inf`` outside a certified set that is not empty and NaN in rows that have ended; ``logits`` are the factual
    reading's; both ``(R, V)`` a step.
    """

    runs: tuple[Run, ...] | None = None


@dataclass(eq=False)
class GenerateWith:
    """A decoding loop for ``model.generate(..., custom_generate=...)``; made by :func:`generate_with`."""

    policy: Policy
    model: LanguageModel | None
    tokenizer: Any
    spans: Sequence[Sequence[Span] | None] | None
    seed: int
    greedy: bool | None
    detector: SpanDetector | None

    @torch.inference_mode()
    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: Any,
        synced_gpus: bool = False,
        streamer: Any = None,
        **model_kwargs: Any,
    ) -> GenerateOutput | Tensor:
        """Decode every row; transformers calls this with what it has prepared."""
        # transformers 5 hands its streamer to its own loops alone.
        streamer = streamer if streamer is not None else _streamer_of_caller()
        _check(input_ids, logits_processor, generation_config, model_kwargs)
        language_model = self._language_model(model)
        attention = model_kwargs.get("attention_mask")
        plans = self._plans(language_model, input_ids, attention, generation_config)
        rows = [_Row(planned, place) for place, planned in enumerate(plans)]
        kept = _Kept(input_ids, stopping_criteria, generation_config, streamer)
        order = sorted(rows, key=lambda row: row.names)
        for _, alike in groupby(order, key=lambda row: row.names):
            continue_together(list(alike), kept.one_step)
        if streamer is not None:
            streamer.end()
        return kept.output(rows, language_model)

    def _language_model(self, module: Any) -> LanguageModel:
        held = self.model
        if held is not None and held.module is module:
            return held
        if held is not None and self.tokenizer is None:
            raise InvalidInputError(
                f"generate was called on another module than that of {held.name!r}; call it on model.module, or leave "
                "model out."
            )
        name = str(getattr(module, "name_or_path", "") or "")
        tokenizer = self.tokenizer
        if tokenizer is None:
            if not name:
                raise InvalidInputError(
                    "The model does not say where it was loaded from, so its tokenizer is not known; give it as "
                    "generate_with(policy, tokenizer=...)."
                )
            tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True, trust_remote_code=False)
        self.tokenizer = tokenizer
        # Digest and noise are measured once; the next call finds them.
        self.model = wrap_model(module, tokenizer, name or type(module).__name__, chat=False)
        return self.model

    def _plans(
        self, model: LanguageModel, input_ids: Tensor, attention: Tensor | None, generation_config: Any
    ) -> list[Plan]:
        rows = input_ids.tolist() if attention is None else [
            [token for token, read in zip(*pair, strict=True) if read]
            for pair in zip(input_ids.tolist(), attention.tolist(), strict=True)
        ]  # fmt: skip
        if self.spans is not None and len(self.spans) != len(rows):
            raise InvalidInputError(
                f"There are spans of {len(self.spans)} prompts and {len(rows)} prompts; give one list a prompt."
            )
        greedy = not generation_config.do_sample if self.greedy is None else self.greedy
        most = int(generation_config.max_length) - input_ids.shape[1]
        plans = []
        for place, ids in enumerate(rows):
            prompt = prompt_of_ids(model.tokenizer, ids)
            rendering = Rendering(model.chat, kept={prompt.text: prompt.tokens}, as_it_stands=True)
            read, spans = replace(model, rendering=rendering), None if self.spans is None else self.spans[place]
            seed = self.seed + place
            plans.append(plan(read, prompt.text, self.policy, spans, seed, greedy, most, self.detector))
        return plans


def generate_with(
    policy: Policy,
    *,
    model: LanguageModel | None = None,
    tokenizer: Any = None,
    spans: Sequence[Sequence[Span] | None] | None = None,
    seed: int = 0,
    greedy: bool | None = None,
    detector: SpanDetector | None = None,
) -> GenerateWith:
    """A policy as a decoding loop for ``model.generate(**inputs, custom_generate=generate_with(policy))``.

    The tokens are those that :func:`coft_core.generate` writes behind the same prompt. The policy's own temperature,
    top-p and top-k hold, as they are part of its fingerprint; those of ``generate`` are not looked at. Stopping
    criteria, streamers, ``max_new_tokens`` and ``return_dict_in_generate`` work as with any other loop.

    Args:
        policy: The policy.
        model: The model as :func:`coft_core.load_model` gave it, whose ``module`` is called; needed for a calibration,
            which names the model. None wraps the module that is called, once.
        tokenizer: Its fast tokenizer; None loads the one that was saved with the model.
        spans: Sensitive spans of each prompt, as offsets into its decoded text; None detects them.
        seed: Seed of the first row's draws; every further row has the next number.
        greedy: Take the likeliest token; None goes by ``do_sample``.
        detector: Span detector; the default one if None.
    """
    return GenerateWith(policy, model, tokenizer, spans, seed, greedy, detector)


class _Row(PlannedChain):
    """A row of the batch, which a stopping criterion may end."""

    def __init__(self, plan: Plan, place: int) -> None:
        super().__init__(plan)
        self.place, self.stopped = place, False

    @property
    def names(self) -> tuple[str, ...]:
        """The branches' names; rows that share them share their forwards."""
        return self._names

    @property
    def finished(self) -> str | None:
        """As every chain, or ``"stop"``."""
        return super().finished or ("stop" if self.stopped else None)


class _Kept:
    """One call's loop, and what is kept of it."""

    def __init__(self, input_ids: Tensor, criteria: StoppingCriteriaList, config: Any, streamer: Any) -> None:
        self._input_ids, self._criteria, self._config, self._streamer = input_ids, criteria, config, streamer
        self._returns = bool(config.return_dict_in_generate)
        # By step and row; groups of rows come one after the other.
        self._scores: defaultdict[int, dict[int, Tensor]] = defaultdict(dict)
        self._logits: defaultdict[int, dict[int, Tensor]] = defaultdict(dict)

    def one_step(self, group: BranchGroup, rows: Sequence[_Row]) -> None:
        """One token a row, and what the criteria say of it."""
        index = group.generated
        following = NextSteps(tuple(row.next_step(index) for row in rows))
        logits, steps = group.followed(following)  # (G * B, V), G
        going = [row for row in rows if row.finished is None]
        self._keep(index, rows, going, logits)
        write(group, rows, logits, steps)
        places = [row.place for row in going]
        written = torch.tensor([row.tokens for row in going], device=self._input_ids.device)  # (G, t)
        if self._streamer is not None:
            self._streamer.put(written[:, -1].cpu())
        whole = torch.cat([self._input_ids[places], written], dim=-1)
        kept = [self._scores[step] for step in range(index + 1)] if self._scores else []
        scores = tuple(torch.stack([step[place] for place in places]) for step in kept) or None
        for row, stop in zip(going, self._criteria(whole, scores).tolist(), strict=True):
            row.stopped = bool(stop)

    def _keep(self, index: int, rows: Sequence[_Row], going: Sequence[_Row], logits: Tensor) -> None:
        """Scores and logits of a step for the rows that go on, as far as they are asked for."""
        by_row = dict(zip(rows, logits.view(len(rows), -1, logits.shape[-1]), strict=True))  # (B, V) each
        if self._returns and self._config.output_logits:
            factual = rows[0].names.index(FACTUAL)
            self._logits[index].update({row.place: by_row[row][factual].float() for row in going})
        if self._returns and self._config.output_scores:
            self._scores[index].update({row.place: _drawn_from(row, index, by_row[row]) for row in going})

    def output(self, rows: Sequence[_Row], model: LanguageModel) -> GenerateOutput | Tensor:
        """What ``generate`` returns, rows in the order in which they were given."""
        pad = self._config._pad_token_tensor
        filler = int(pad) if pad is not None else min(model.end_token_ids, default=0)
        longest = max(len(row.tokens) for row in rows)
        padded = [[*row.tokens, *[filler] * (longest - len(row.tokens))] for row in rows]
        written = torch.tensor(padded, dtype=self._input_ids.dtype, device=self._input_ids.device)
        sequences = torch.cat([self._input_ids, written], dim=-1)
        if not self._returns:
            return sequences
        scores, logits = _stacked(self._scores, len(rows)), _stacked(self._logits, len(rows))
        usual: dict[str, Any] = {"sequences": sequences, "scores": scores, "logits": logits}
        return GenerateOutput(**usual, runs=tuple(row.run() for row in rows))


def _drawn_from(row: _Row, index: int, logits: Tensor) -> Tensor:
    """Log-probabilities from which a row draws, ``(V,)``, of its branches' logits ``(B, V)``."""
    views = row.plan.policy.views(logits[None], index, row.names, [row.next_step(index).past])
    if views.certified is None or not bool(views.certified.any()):
        return views.log_p_fused[0]
    return views.log_p_fused[0].masked_fill(~views.certified[0], float("-inf"))


def _stacked(kept: dict[int, dict[int, Tensor]], count: int) -> Any:
    """One tensor ``(R, V)`` a step; None where nothing was asked for."""
    if not kept:
        return None
    nothing = torch.full_like(next(iter(kept[0].values())), float("nan"))
    return tuple(torch.stack([step.get(place, nothing) for place in range(count)]) for step in kept.values())


def _check(input_ids: Tensor, processors: LogitsProcessorList, config: Any, model_kwargs: dict[str, Any]) -> None:
    """Refuse what would otherwise be left undone without a word."""
    others = [type(processor).__name__ for processor in processors if not isinstance(processor, SAMPLING)]
    if others:
        raise InvalidInputError(
            f"A policy decides alone what is drawn, and {others[0]} would change it; leave it out, or decode without "
            "custom_generate."
        )
    if (config.num_beams or 1) > 1 or config.penalty_alpha:
        raise InvalidInputError("A policy draws one token at a time; leave num_beams and penalty_alpha out.")
    if config.return_dict_in_generate and (config.output_attentions or config.output_hidden_states):
        raise InvalidInputError("Attentions and hidden states of several readings are not kept; leave them out.")
    if model_kwargs.get("inputs_embeds") is not None or not input_ids.numel():
        raise InvalidInputError("A policy masks words, so it needs the prompt's tokens; give input_ids.")
    cache = model_kwargs.get("past_key_values")
    if cache is not None and cache.get_seq_length():
        raise InvalidInputError("A policy reads the prompt several times; leave past_key_values out.")


def _streamer_of_caller() -> Any:
    """The streamer of the ``generate`` that called; None where there is none."""
    frame = inspect.currentframe()
    code = inspect.unwrap(GenerationMixin.generate).__code__
    while frame is not None:
        if frame.f_code is code:
            return frame.f_locals.get("streamer")
        frame = frame.f_back
    return None
