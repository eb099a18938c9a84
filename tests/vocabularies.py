"""Small tokenizers made by hand, one of each kind of vocabulary, and random models that read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from coft_core.model.language_model import LanguageModel
from coft_core.model.load import wrap_model
from tests.models.tiny import tiny_module

CONTROL = ("<unk>", "<s>", "</s>")
LETTERS = "abcdefghijklmnopqrstuvwxyzTN.,"
WORDS = ("a", "The", "nurse", "said", "he", "she", "would", "come", "ran", "home", "and", "then")


def sentencepiece(pieces: Sequence[str] = ("_", "-"), template: str | None = None) -> PreTrainedTokenizerFast:
    """A BPE as Llama 2 has it: a space before every text, spaces as pieces, bytes for what is in no piece."""
    symbols = [*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *LETTERS, *pieces]
    symbols += ["\u2581h", "\u2581he"]
    merges = [("\u2581", "h"), ("\u2581h", "e")]
    backend = Tokenizer(
        models.BPE(
            vocab={symbol: i for i, symbol in enumerate(symbols)},
            merges=merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return finished(backend, chat_template=template)


def unigram(pieces: Sequence[str]) -> PreTrainedTokenizerFast:
    """A Unigram vocabulary as SentencePiece writes it: letters, and these pieces."""
    scored = [(symbol, 0.0) for symbol in CONTROL] + [(symbol, -3.0) for symbol in (*LETTERS, *pieces)]
    backend = Tokenizer(models.Unigram(scored, unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return finished(backend)


def characters(alphabet: str, unknown: bool = True) -> PreTrainedTokenizerFast:
    """One token a character, and the unknown token for all others if there is one; else they are dropped."""
    symbols = [*(CONTROL if unknown else CONTROL[1:]), *alphabet]
    vocabulary = {symbol: i for i, symbol in enumerate(symbols)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>" if unknown else None))
    backend.decoder = decoders.Fuse()
    return finished(backend, **({} if unknown else {"unk_token": None}))


def byte_level(
    added: Sequence[str] = (), mask: str | None = None, merged: Sequence[tuple[str, str]] = (), trim: bool = False
) -> PreTrainedTokenizerFast:
    """A byte-level BPE as GPT-2 has it, with merges and added tokens."""
    symbols = [*CONTROL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(left + right for left, right in merged)]
    backend = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=list(merged)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if trim:
        backend.post_processor = processors.ByteLevel(trim_offsets=True)
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in added])
    return finished(backend, **({} if mask is None else {"mask_token": mask}))


def words_alone(words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """Whole words and an end token that stands for all others too: nothing could stand for a masked word."""
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(("</s>", *words))}, unk_token="</s>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return finished(backend, bos_token=None, unk_token="</s>")


def finished(backend: Tokenizer, **given: Any) -> PreTrainedTokenizerFast:
    build: Any = PreTrainedTokenizerFast
    named = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", **given}
    made: PreTrainedTokenizerFast = build(
        tokenizer_object=backend, **{name: value for name, value in named.items() if value is not None}
    )
    return made


def random_model(tokenizer: Any, name: str = "tiny") -> LanguageModel:
    """A Llama of random weights over a vocabulary."""
    ends = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id, "pad_token_id": None}
    return wrap_model(tiny_module("llama", vocab_size=len(tokenizer), **ends), tokenizer, name=name)
