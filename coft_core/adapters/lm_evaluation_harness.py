"""Any method as a model of lm-evaluation-harness (Gao et al. 2024): ``--model coft``.

Prompts and continuations are tokenized, cut and scored as the harness's own ``hf`` model does it; what differs is whose
likelihoods and whose tokens they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import has_bos_prefix, normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from coft_core.adapters.shared import chosen_policy
from coft_core.errors import InvalidInputError
from coft_core.model.load import load_model
from coft_core.policies.base import Policy
from coft_core.suites.base import Answer, Ask, Choices, Scored, Unread, Writing, Written
from coft_core.suites.reading import Reader
from coft_core.text.detection import default_detector
from coft_core.text.given import GivenPrompt, prompt_of_text
from coft_core.text.rendering import Rendering, thinking_switch
from coft_core.text.thinking import KNOWN, ThinkingMarks, thinking_marks
from coft_core.text.turns import Frame, Thinking

NAME = "coft"
MOST_TOKENS = 256
"""What the harness's own models write at most where a task says nothing."""
TOGETHER = 64
"""Requests that are read at a time unless told otherwise; the reader makes its batches of these."""
WITHOUT_EFFECT = ("do_sample", "temperature", "until", "max_gen_toks")
LOGGER = logging.getLogger(__name__)


@dataclass
class Counts:
    """What was read, for the results file; several continuations in a row behind the same prompt are one prompt."""

    prompts: int = 0
    unmasked_prompts: int = 0
    cut_prompts: int = 0
    unended_thinkings: int = 0
    tokens: int = 0
    refused_tokens: int = 0
    empty_sets: int = 0


@register_model(NAME)
class CoftLM(TemplateLM):
    """A policy on a model, as lm-evaluation-harness asks a model."""

    def __init__(
        self,
        pretrained: str = "demo",
        policy: str = "coft",
        *,
        revision: str | None = None,
        device: str | None = None,
        dtype: str = "auto",
        quantization: str = "none",
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        max_length: int | None = None,
        max_gen_toks: int = MOST_TOKENS,
        add_bos_token: bool | None = None,
        enable_thinking: bool | None = None,
        think_end_token: str | int | None = None,
        outside: str = "floor",
        seed: int = 0,
        **options: Any,
    ) -> None:
        """Load the model; ``docs/adapters.md`` has the options, and :func:`chosen_policy` those of the policy."""
        super().__init__()
        del max_batch_size
        if outside not in ("floor", "zero"):
            raise InvalidInputError(f"outside is {outside!r}; choose floor or zero.")
        self._policy = chosen_policy(policy, options)
        self._model = load_model(
            pretrained, _device(device), dtype, revision, chat=False, quantization=quantization
        ).dated()
        self.tokenizer = self._model.tokenizer
        self._device = self._model.device
        self._detector = default_detector()
        self._together = int(str(batch_size)) if str(batch_size or "").isdigit() else TOGETHER
        # A prompt with its continuation takes no more than the context, the last token included.
        self._max_length = min(max_length or self._model.context_length, self._model.context_length) - 1
        self._max_gen_toks, self._add_special, self._outside, self._seed = max_gen_toks, add_bos_token, outside, seed
        self._thinking: Thinking = "auto" if enable_thinking is None else ("on" if enable_thinking else "off")
        self._marks = self._marks_of_thinking(think_end_token)
        self._templated = False
        self._asked = 0
        self.counts = Counts()

    def _marks_of_thinking(self, ends: str | int | None) -> ThinkingMarks | None:
        """The marks that tell thinking from answers; None where answers are all that is written."""
        if ends is None:
            marks = thinking_marks(self.tokenizer) if self._thinking == "on" else None
            if marks is None and self._thinking == "on":
                raise InvalidInputError(
                    "enable_thinking is on, and neither the tokenizer nor the chat template has marks of thinking that "
                    "are known here; give both as think_end_token, such as '<think> </think>'."
                )
            return marks
        text = str(self.tokenizer.decode([int(ends)]) if str(ends).isdecimal() else ends).strip()
        if " " in text:
            return ThinkingMarks.parse(text)
        marks = next((known for known in KNOWN if known.closes == text), None)
        if marks is None:
            raise InvalidInputError(
                f"think_end_token is {text!r}, and what begins such a thinking is not known here; give both marks with "
                "a space between them, such as '<think> </think>'."
            )
        return marks

    # What the harness asks of the tokenizer.

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text that begins a document."""
        start = self.tokenizer.bos_token_id
        return int(self.tokenizer.eos_token_id if start is None else start)

    @property
    def max_length(self) -> int:
        """Tokens of prompt and continuation without the last."""
        return self._max_length

    @property
    def max_gen_toks(self) -> int:
        """Tokens that are written where a task says nothing."""
        return self._max_gen_toks

    @property
    def batch_size(self) -> int:
        """Requests that are read at a time."""
        return self._together

    @property
    def tokenizer_name(self) -> str:
        """The tokenizer, for the harness's own memory of requests."""
        return self._model.tokenizer_digest

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Tokens of a text."""
        special = self._special(string) if add_special_tokens is None else add_special_tokens
        return list(prompt_of_text(self.tokenizer, string, special).ids)

    def _special(self, text: str) -> bool:
        """Whether the tokenizer puts its special tokens around a text, as the ``hf`` model decides it."""
        if has_bos_prefix(text, self.tokenizer.decode([self.prefix_token_id])):
            return False
        return self._add_special is not False

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as the model reads it; from then on prompts count as rendered by the chat template."""
        self._templated = True
        switch = thinking_switch(str(self.tokenizer.get_chat_template()))
        if self._thinking != "auto" and not switch:
            raise InvalidInputError(
                "enable_thinking is given, and this model's chat template does not ask whether it is to think; leave "
                "enable_thinking out."
            )
        told: dict[str, Any] = {} if self._thinking == "auto" else {switch: self._thinking == "on"}
        return str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
                **told,
            )
        )

    # What it asks of the model.

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[tuple[str, str], list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        pairs = []
        for (context, _continuation), context_ids, continuation_ids in requests:
            # The harness moves white space at the end of a context to its continuation.
            text = context.rstrip()
            prompt = prompt_of_text(self.tokenizer, text, self._special(text))
            if prompt.ids != tuple(context_ids):
                prompt = GivenPrompt("", tuple(context_ids), ((0, 0),) * len(context_ids))
            pairs.append((prompt, tuple(continuation_ids)))
        found = self._likelihoods(pairs, disable_tqdm)
        for (text_pair, _context, _tokens), value in zip(requests, found, strict=True):
            self.cache_hook.add_partial("loglikelihood", text_pair, value)
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihoods of whole texts, in windows of the model's context; each window masks what it reads before."""
        pairs: list[_Pair] = []
        counts = []
        for (text,) in (request.args for request in requests):
            whole = prompt_of_text(self.tokenizer, text, self._special(text))
            windows = get_rolling_token_windows(
                token_list=list(range(len(whole.ids))), prefix_token=-1, max_seq_len=self.max_length, context_len=1
            )
            places = [make_disjoint_window(window) for window in windows]
            pairs += [(self._window(whole, before), tuple(whole.ids[i] for i in scored)) for before, scored in places]
            counts.append(len(places))
        found = iter(self._likelihoods(pairs, disable_tqdm))
        totals = [sum(next(found)[0] for _ in range(count)) for count in counts]
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def _window(self, whole: GivenPrompt, places: Sequence[int]) -> GivenPrompt:
        """What stands before a window's scored tokens, by their places; -1 is the start of the text."""
        inside = [place for place in places if place >= 0]
        part = whole.part(inside[0], inside[-1] + 1) if inside else GivenPrompt("", (), ())
        if len(inside) == len(places):
            return part
        return GivenPrompt(part.text, (self.prefix_token_id, *part.ids), ((0, 0), *part.offsets))

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continuations up to a stop, of the likeliest tokens unless a task samples."""
        texts: list[str] = []
        for start in _starts(requests, self._together, "Writing", disable_tqdm):
            asked = [request.args for request in requests[start : start + self._together]]
            prepared = [self._writing(context, dict(options)) for context, options in asked]
            answers = self._answers(prepared)
            for (context, options), answer in zip(asked, answers, strict=True):
                text = ""
                if isinstance(answer, Written):
                    self.counts.tokens += answer.tokens
                    self.counts.empty_sets += len(answer.empty)
                    text = answer.text
                self.cache_hook.add_partial("generate_until", (context, options), text)
                texts.append(text)
        self._report()
        return texts

    def _writing(self, context: str, options: dict[str, Any]) -> _Prepared:
        wanted: dict[str, Any] = dict(normalize_gen_kwargs(options, self.max_gen_toks))
        samples, most = bool(wanted["do_sample"]), int(wanted["max_gen_toks"])
        controls = {name: wanted[name] for name in ("temperature", "top_p", "top_k") if samples and name in wanted}
        others = set(wanted) - {*WITHOUT_EFFECT, "top_p", "top_k"}
        if others:
            raise InvalidInputError(
                f"A task asks for {sorted(others)[0]!r}, which a policy does not do; leave it out of its "
                "generation_kwargs."
            )
        room = self._model.context_length - most
        if room < 1:
            raise InvalidInputError(
                f"A task writes up to {most:,} tokens and the model takes {self._model.context_length:,} with the "
                "prompt; set max_gen_toks lower."
            )
        prompt = self._cut(prompt_of_text(self.tokenizer, context, self._special(context)), room)
        # The end token ends a chain by itself.
        end = self.tokenizer.decode([self.eot_token_id])
        stops = tuple(stop for stop in wanted["until"] if stop and stop != end)
        return _Prepared(
            prompt, Writing(prompt.text, most, stops, greedy=not samples), replace(self._policy, **controls)
        )

    def _likelihoods(self, pairs: Sequence[_Pair], quiet: bool) -> list[tuple[float, bool]]:
        """Log-likelihood of each continuation, and whether it is the greedy choice."""
        if self._thinking == "on":
            raise InvalidInputError(
                "enable_thinking is on, and a task compares given answers, before which the model cannot think; leave "
                "enable_thinking out for such tasks."
            )
        asked = []
        # Continuations of one prompt together; those that leave it no room are each read behind a part of it.
        fitting = [(self._cut(prompt, self.max_length + 1 - len(tokens)), tokens) for prompt, tokens in pairs]
        for prompt, alike in groupby(fitting, key=itemgetter(0)):
            texts = tuple(tokens for _, tokens in alike)
            asked.append(_Prepared(prompt, Choices(prompt.text, ("",) * len(texts), tokens=texts), self._policy))
        found: list[tuple[float, bool]] = []
        for start in _starts(asked, self._together, "Reading", quiet):
            for answer in self._answers(asked[start : start + self._together]):
                assert isinstance(answer, Scored)  # it was asked for likelihoods
                for likelihood in answer.likelihoods:
                    self.counts.tokens += likelihood.tokens
                    self.counts.refused_tokens += likelihood.refused
                    self.counts.empty_sets += likelihood.empty
                    value = likelihood.floored if self._outside == "floor" else likelihood.of("zero")
                    found.append((value, likelihood.greedy))
        self._report()
        return found

    def _cut(self, prompt: GivenPrompt, room: int) -> GivenPrompt:
        """The last tokens of a prompt that is longer than there is room for."""
        if len(prompt.ids) <= room:
            return prompt
        self.counts.cut_prompts += 1
        return prompt.part(len(prompt.ids) - room, len(prompt.ids))

    def _answers(self, asked: Sequence[_Prepared]) -> list[Answer]:
        """Answers in order; prompts whose text has other tokens elsewhere are read apart from those."""
        if self._thinking != "auto" and not self._templated:
            raise InvalidInputError(
                "enable_thinking is given, and prompts go through no chat template; add --apply_chat_template."
            )
        answers: dict[int, Answer] = {}
        left = list(enumerate(asked))
        while left:
            policy, kept = left[0][1].policy, {left[0][1].prompt.text: left[0][1].prompt.tokens}
            now = [
                (place, one)
                for place, one in left
                if one.policy == policy and kept.setdefault(one.prompt.text, one.prompt.tokens) == one.prompt.tokens
            ]
            taken = {place for place, _ in now}
            left = [(place, one) for place, one in left if place not in taken]
            frame, moment = Frame(thinking=self._thinking), self._model.prompting.moment
            rendering = Rendering(self._templated, moment, kept, frame=frame, as_it_stands=self._templated)
            reader = Reader(self._model.rendered_as(rendering), detector=self._detector, marks=self._marks)
            seeds = [self._seed + self._asked + place for place, _ in now]
            (read,) = reader.read([one.ask for _, one in now], [policy], seeds)
            answers.update(zip((place for place, _ in now), read, strict=True))
        self._asked += len(asked)
        for answer in answers.values():
            self.counts.prompts += 1
            if not isinstance(answer, Unread):
                self.counts.unmasked_prompts += answer.masked == 0
            elif answer.thinking:
                self.counts.unended_thinkings += 1
            else:
                raise InvalidInputError(
                    f"A prompt cannot be read by the policy {self._policy.title}: {answer.reason} Set max_length "
                    "lower, so that its other readings have room."
                )
        return [answers[place] for place in range(len(asked))]

    def _report(self) -> None:
        for count, sentence in (
            (
                self.counts.unmasked_prompts,
                "Nothing is masked in %d of %d prompts so far; its readings are equal.",
            ),
            (
                self.counts.unended_thinkings,
                "Thinking did not end in %d of %d prompts so far; raise max_gen_toks.",
            ),
        ):
            if count:
                LOGGER.warning(sentence, count, self.counts.prompts)

    def get_model_info(self) -> dict[str, Any]:
        """What the results file says of the model and the policy, and what was read."""
        model = self._model.formatted("chat" if self._templated else "plain").dated(self._model.prompting.moment)
        model = model.framed(Frame(thinking=self._thinking))
        certificate = self._policy.certificate(model, self._detector.version)
        return {
            "model_num_parameters": model.parameter_count,
            "model_dtype": model.dtype_name,
            "model_revision": model.revision,
            "model_sha": model.weights_digest,
            "coft": {
                "policy": self._policy.name,
                "certificate": certificate.text,
                "fingerprint": self._policy.fingerprint(model, self._detector.version).to_dict(),
                "outside": self._outside,
                **asdict(self.counts),
            },
        }


_Pair = tuple[GivenPrompt, tuple[int, ...]]
"""A prompt, and the tokens of what follows it."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A request with its prompt and the policy that answers it."""

    prompt: GivenPrompt
    ask: Ask
    policy: Policy


def _device(wanted: str | None) -> str:
    """The device to load on; the harness asks for a GPU by itself, whether there is one or not."""
    if wanted and wanted.startswith("cuda") and not torch.cuda.is_available():
        LOGGER.warning("There is no GPU here for the device %r; the model runs on the processor.", wanted)
        return "auto"
    return wanted or "auto"


def _starts(requests: Sequence[Any], size: int, what: str, quiet: bool) -> Iterable[int]:
    """Where each batch of requests begins, with progress on the terminal."""
    found: Iterable[int] = tqdm(range(0, len(requests), size), desc=f"{what} by {size}", disable=quiet)
    return found
