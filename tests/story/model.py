"""A model that tells one story: how likely each next word is stands here, so that pages show what is known before."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import AddedToken
from torch import Tensor, nn

from coft_core.errors import ModelLoadError
from coft_core.model.fake import byte_tokenizer
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import DEMO, load_model, wrap_model

PROMPT = "The uncle finished rounds and then he prepared the reports"
"""Ten tokens; “uncle” and “he” (both gender) are sensitive."""
LONG_PROMPT = "The elderly German, a Muslim, finished rounds and then he left"
"""Thirteen tokens; four sensitive words, each of another family, are masked unless the settings say otherwise."""

STORY = (
    " and", " he", " filed", " his", " notes", " before", " the", " night", " shift", " began", ".", " The",
    " doctor", " thanked", " him", " for", " the", " clear", " handover", ",", " and", " the", " ward", " settled",
    " into", " a", " quiet", " evening", ".", " In", " the", " morning", ",", " his", " colleagues", " found",
    " every", " chart",
)  # fmt: skip
"""The likeliest words one after the other, but for the first two; after its end it begins again."""
RATIOS = {0: 0.36, 1: 0.89, 3: 1.12, 8: -0.62, 12: 0.41, 14: 0.97, 17: -0.12, 26: -0.24, 33: 0.74, 34: 0.11}
"""By place in the story: by how many nats masking “he” alone lowers the word there; elsewhere by 0.03."""
UNSURE = 12
"""Where nothing is likely, after a prompt with “rounds”."""
ASIDES = {" they": 0.12, " the": 0.1, " she": 0.07, " then": 0.045, " nobody": 0.02, " we": 0.01}
"""What may stand anywhere instead."""
ENDS = (" reports", " left", " where", " said")
"""Words that end prompts: the story begins behind them, and after ten tokens in a prompt without any."""
OTHER_WORDS = (
    "The", " uncle", " finished", " rounds", " prepared", " German", " Muslim", " tourist", " asked", " cook", " her",
    " elderly", " blind", "Emily", " Emily",
)  # fmt: skip
WORDS = tuple(sorted(word for word in {*STORY, *ASIDES, *ENDS, *OTHER_WORDS} if len(word) > 1))
"""What the tokenizer knows beside single bytes."""
SHARES = (0.0, 0.5, -0.35, 0.0, 0.3, 0.4, 1.0, 0.2, 0.2, 0.2, 0.2, 0.5)
"""By its place in the prompt: how much one masked word counts."""
SWAPPED = 6
"""Where “she” instead of “he” does half of what masking does, the other way round."""
CONTEXT_LENGTH = 1024
EMBEDDED = "shipped"
"""The name by which the story's program loads the model that comes with it; ``demo`` is the story's own."""


def likely_words(place: int) -> dict[str, tuple[float, float]]:
    """Probability and log ratio of each word that is likely at a place of the story."""
    word, ratio = STORY[place], RATIOS.get(place, 0.03)
    others = {other: (p, 0.0) for other, p in ASIDES.items() if other != word}
    if place == 0:
        return {**others, ".": (0.35, 0.03), word: (0.25, ratio)}
    if place == 1:
        return {**others, " they": (0.36, 0.03), word: (0.34, ratio)}
    return {**others, word: (0.5, ratio)}


class StoryCausalLM(nn.Module):
    """Looks up what follows each token by its place in the story; keys hold the tokens, so that it can be cached."""

    def __init__(self, tokenizer: Any) -> None:
        """Write the tables for a tokenizer that knows every word of the story."""
        super().__init__()
        vocabulary = len(tokenizer)

        def number(word: str) -> int:
            return int(tokenizer.encode(word)[0])

        words = [number(word) for word in WORDS]
        plain = torch.full((len(STORY) + 1, vocabulary), 1e-6)  # (S + 1, V)
        masked = plain.clone()
        for place in range(len(STORY)):
            likely = {number(word): chances for word, chances in likely_words(place).items()}
            plain[place, words] = (1 - sum(p for p, _ in likely.values())) / (len(words) - len(likely))
            for token, (p, _) in likely.items():
                plain[place, token] = p
            changed = {token: plain[place, token] * math.exp(-ratio) for token, (_, ratio) in likely.items() if ratio}
            before = plain[place, list(changed)].sum()
            masked[place] = plain[place] * (1 - sum(changed.values())) / (1 - before)
            for token, p in changed.items():
                masked[place, token] = p
        for table in (plain, masked):
            table[-1] = 0.06 * table[UNSURE]
            table[-1, words] += 0.94 / len(words)
        logs = torch.stack([plain, masked]).log()
        self.plain = nn.Parameter(logs[0], requires_grad=False)  # (S + 1, V)
        self.effect = nn.Parameter(logs[1] - logs[0], requires_grad=False)  # (S + 1, V)
        self.shares = nn.Parameter(torch.tensor(SHARES), requires_grad=False)
        self.ends = torch.tensor([number(word) for word in ENDS])
        self.rounds, self.she, self.sentinel = number(" rounds"), number(" she"), int(tokenizer.mask_token_id)
        self.config = _Config(max_position_embeddings=CONTEXT_LENGTH)
        self.generation_config = SimpleNamespace(eos_token_id=None)

    def get_output_embeddings(self) -> Any:
        """The tables stand for the head: their width is the vocabulary's."""
        return SimpleNamespace(weight=self.plain.T)

    def forward(
        self, input_ids: Tensor, past_key_values: Any = None, attention_mask: Any = None, use_cache: bool = False
    ) -> Any:
        """Logits after each token, ``(R, L, V)``; padding on either side counts for nothing."""
        count = input_ids.shape[1]
        tokens = input_ids + 1  # (R, L), 0 is padding
        if attention_mask is not None and attention_mask.dim() == 2:
            tokens = tokens * attention_mask[:, -count:]
        if past_key_values is not None:
            keys, _ = past_key_values.update(*(tokens[:, None, :, None].float(),) * 2, 0)
            tokens = keys[:, 0, :, 0].long()
        places = (tokens > 0).cumsum(-1) - 1  # (R, T)
        ended = torch.where(torch.isin(tokens - 1, self.ends), places, torch.full_like(places, -1)).cummax(-1).values
        start = torch.where(ended < 0, 9, ended)
        told = (places - start).clamp_min(0) % len(STORY)  # (R, T)
        unsure = (told == UNSURE) & (tokens == self.rounds + 1).cumsum(-1).bool()
        told = torch.where(unsure, len(STORY), told)
        held = tokens == self.sentinel + 1
        shares = self.shares[places.clamp(0) % len(SHARES)]  # (R, T)
        swapped = (tokens == self.she + 1) & (places == SWAPPED)
        weight = (shares * (held.float() - 0.5 * swapped)).cumsum(-1)  # (R, T)
        told, weight = told[:, -count:], weight[:, -count:]
        return SimpleNamespace(logits=self.plain[told] + weight[..., None] * self.effect[told])


class _Config(SimpleNamespace):
    def get_text_config(self, decoder: bool = True) -> _Config:
        return self


@functools.cache
def story_model() -> LanguageModel:
    """The model; one for each process, since it never changes."""
    tokenizer: Any = byte_tokenizer()
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    return wrap_model(StoryCausalLM(tokenizer), tokenizer, name="demo")


@functools.cache
def the_embedded_model() -> LanguageModel:
    """The model that comes with the program; one for each process."""
    return load_model(DEMO)


def load_story(name: str, **_: object) -> LanguageModel:
    """A loader that gives the model under any name but ``missing`` and the embedded model's."""
    if name == EMBEDDED:
        return replace(the_embedded_model(), name=name)
    if name == "missing":
        raise ModelLoadError("There is no model 'missing': give a hub id or a folder that holds one.")
    return replace(story_model(), name=name)
