"""Small models for tests: random weights with a byte tokenizer, and logits written down by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from coft_core.model.language_model import LanguageModel
from coft_core.model.load import wrap_model
from coft_core.model.slots import RowTokens

SENTINEL = "<mask>"
END = "<eos>"


def byte_tokenizer(chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """A fast tokenizer with one token a byte, an end token and a sentinel."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return _finished(backend, chat_template)


def word_tokenizer(words: tuple[str, ...]) -> PreTrainedTokenizerFast:
    """A fast tokenizer with one token a word (leading space included), for examples written in whole words."""
    symbols = [*sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {s: i for i, s in enumerate([*symbols, *(w.replace(" ", "\u0120") for w in words)])}
    backend = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=symbols[0], continuing_subword_prefix=""))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    return _finished(backend, None)


def tiny_model(
    seed: int = 0,
    context_length: int = 256,
    dtype: torch.dtype = torch.float32,
    chat_template: str | None = None,
) -> LanguageModel:
    """A two-layer Llama of random weights over bytes; its distributions are uneven enough to certify some tokens."""
    tokenizer = byte_tokenizer(chat_template)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context_length,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        initializer_range=0.4,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module: Any = LlamaForCausalLM(config)
        module = module.to(dtype).eval().requires_grad_(False)
    return wrap_model(module, tokenizer, name=f"tiny-{seed}")


class ScriptedCausalLM(nn.Module):
    """A module whose next-token probabilities are written down: one table for prompts with the sentinel, one without.

    Every position gets the same distribution, so it is causal and can be cached.
    """

    def __init__(self, factual: Tensor, masked: Tensor, sentinel_id: int, context_length: int = 128) -> None:
        super().__init__()
        self.tables = nn.Parameter(torch.stack([factual, masked]).log().clamp_min(-60.0), requires_grad=False)
        self.sentinel_id = sentinel_id
        self.config = _Config(context_length)
        self.generation_config = SimpleNamespace(eos_token_id=None)

    def get_output_embeddings(self) -> Any:
        """The table stands for the head: its width is the vocabulary's."""
        return SimpleNamespace(weight=self.tables.T)

    def forward(
        self, input_ids: Tensor, past_key_values: Any = None, attention_mask: Any = None, use_cache: bool = False
    ) -> Any:
        """Look the distribution up; a cache of width 1 remembers which rows hold the sentinel, padding never does."""
        held = (input_ids == self.sentinel_id).any(-1)  # (R,)
        if past_key_values is not None:
            flags = (input_ids == self.sentinel_id).float()[:, None, :, None]  # (R, 1, L, 1)
            keys, _ = past_key_values.update(flags, flags, 0)
            held = keys.flatten(1).any(-1)
        logits = self.tables[held.long()][:, None].expand(-1, input_ids.shape[1], -1)  # (R, L, V)
        return SimpleNamespace(logits=logits)


def scripted_model(
    factual: Mapping[str, float], masked: Mapping[str, float], vocabulary: tuple[str, ...]
) -> LanguageModel:
    """A model over whole words whose factual and masked next-word probabilities are given."""
    tokenizer: Any = word_tokenizer(vocabulary)
    rest = int(tokenizer.convert_tokens_to_ids(vocabulary[0].replace(" ", "\u0120")))

    def table(given: Mapping[str, float]) -> Tensor:
        p = torch.zeros(len(tokenizer), dtype=torch.float64)
        for word, value in given.items():
            p[int(tokenizer.convert_tokens_to_ids(word.replace(" ", "\u0120")))] = value
        p[rest] += max(0.0, 1.0 - float(p.sum()))
        return p.float()

    module = ScriptedCausalLM(table(factual), table(masked), int(tokenizer.mask_token_id))
    return wrap_model(module, tokenizer, name="scripted")


@dataclass
class MostLikelyOnly:
    """An engine that computes with a model and returns only the log-probabilities of the most likely tokens."""

    model: LanguageModel
    count: int
    title: ClassVar[str] = "most likely tokens only"
    computes_here: ClassVar[bool] = True
    token_bytes: ClassVar[int] = 0
    weight_bytes: ClassVar[int] = 0
    parameter_count: ClassVar[int] = 0

    def open_rows(self, tokens: RowTokens) -> Any:
        """Rows that are read anew for every token."""
        return _Reread(self, tokens)

    def read(self, ids: Tensor, begin: int = 0) -> Iterator[Tensor]:
        """Logits after each token of ``(R, L)`` from a column on, all at once, ``(R, L - begin, V)``."""
        yield most_likely_of(self.model.plain_logits(ids)[:, begin:], self.count)


@dataclass
class _Reread:
    engine: MostLikelyOnly
    tokens: RowTokens
    size: ClassVar[int] = 0
    shared_length: ClassVar[int] = 0
    may_join: ClassVar[bool] = False

    def size_after(self, count: int) -> int:
        return 0

    def logits(self) -> Tensor:
        written = zip(self.tokens.prompts, self.tokens.after(0).tolist(), strict=True)
        rows = [torch.tensor([[*prompt, *after]]) for prompt, after in written]  # R of (1, L)
        return torch.cat([one[:, -1] for row in rows for one in self.engine.read(row, row.shape[1] - 1)])  # (R, V)

    def cut(self) -> None:
        pass

    def copied(self, tokens: RowTokens) -> _Reread:
        return _Reread(self.engine, tokens)

    def keep(self, rows: Sequence[int], tokens: RowTokens) -> None:
        self.tokens = tokens


def most_likely_of(logits: Tensor, count: int) -> Tensor:
    """Log-probabilities of the most likely tokens of ``(..., V)``, and ``-inf`` for all others."""
    log_p = torch.log_softmax(logits.float(), dim=-1)
    values, ids = log_p.topk(count, dim=-1)
    return torch.full_like(log_p, -torch.inf).scatter(-1, ids, values)


def with_most_likely_only(model: LanguageModel, count: int) -> LanguageModel:
    """A model as a server that returns only the most likely tokens would offer it."""
    return replace(model, module=MostLikelyOnly(model, count), most_likely=count, findings={})


class _Config(SimpleNamespace):
    def __init__(self, context_length: int) -> None:
        super().__init__(max_position_embeddings=context_length)

    def get_text_config(self, decoder: bool = True) -> _Config:
        return self


def _finished(backend: Tokenizer, chat_template: str | None) -> PreTrainedTokenizerFast:
    backend.add_special_tokens(
        [
            AddedToken(END, special=True, normalized=False),
            AddedToken(SENTINEL, special=True, normalized=False),
        ]
    )
    build: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = build(
        tokenizer_object=backend, eos_token=END, mask_token=SENTINEL, chat_template=chat_template
    )
    return tokenizer
