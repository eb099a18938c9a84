"""What loading and preparing a model tells while it goes on, and what is said where it fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
import transformers


class LoadingPhase(StrEnum):
    """What is being done; the phases come in this order."""

    TOKENIZER = "tokenizer"
    WEIGHTS = "weights"
    DIGEST = "digest"
    WARM_UP = "warm-up"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a model will need of a processor: bytes of weights, and of a token's keys and values in one branch.

    A token takes at least the seconds in which the weights are read once, for all branches together.
    """

    weight_bytes: int
    token_bytes: int
    token_seconds: float

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"It needs about {_amount(self.weight_bytes)} of memory, and {_amount(2 * self.token_bytes)} for each "
            f"token with two branches. Such a token takes about {self.token_seconds:.2g} seconds or more."
        )


def _amount(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.2g} MB"


LoadingProgress = Callable[[LoadingPhase | Needs], None]
"""Called when a phase begins, and with what the model will need of a processor before its weights are read."""

OFFLINE = frozenset(
    {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectError", "ConnectionError", "ConnectTimeout"}
)


def explain(name: str, error: BaseException, quantization: str = "none", may_be_trusted: bool = False) -> str:
    """One sentence: why a model cannot be loaded, and what to do."""
    chain: list[BaseException] = [error]
    while (below := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(below)
    kinds = {type(e).__name__ for e in chain}
    text = " ".join(str(error).split())
    if out_of_memory(error):
        return (
            f"{name!r} does not fit into the memory here; try dtype 'bfloat16', quantization '8bit' or '4bit', or the "
            "device map 'auto', which spreads it over all devices."
        )
    if "GatedRepoError" in kinds or "gated repo" in text:
        return f"{name!r} is gated; accept its terms on its page, then log in with 'hf auth login'."
    if "RevisionNotFoundError" in kinds:
        return f"{name!r} has no such revision; check the branch, tag or commit."
    if kinds & {"RepositoryNotFoundError", "HFValidationError"} or "not a valid model identifier" in text:
        return f"There is no model {name!r}; check the id, or give the path of a local folder."
    if kinds & OFFLINE:
        return f"{name!r} is not on this computer and the hub cannot be reached; go online or give a local folder."
    if (lacking := next((each for each in chain if isinstance(each, ImportError)), None)) is not None:
        return (
            f"{name!r} needs a package that is not installed here: {_lacking(lacking)}; install it, and load it again."
        )
    if "SafetensorError" in kinds:
        return f"The weights of {name!r} are damaged ({text[:200]}); fetch them again."
    if "ignore_mismatched_sizes" in text:
        return (
            f"The weights of {name!r} have other shapes than its config.json says; take both from the same checkpoint."
        )
    if "trust_remote_code" in text:
        allowed = ", or have the program's owner trust it (COFT_TRUST_REMOTE_CODE)" if may_be_trusted else ""
        return (
            f"{name!r} needs code of its own, which is not run here; choose a model whose architecture transformers "
            f"itself has{allowed}."
        )
    if "does not recognize this architecture" in text:
        return (
            f"{name!r} is of a kind that transformers {transformers.__version__} does not have; choose another model."
        )
    if isinstance(error, OSError) and "safetensors" in text:
        return (
            f"{name!r} cannot be loaded: it has no weights in safetensors files, and other forms are not read, since "
            "they can run code; choose another checkpoint, or save it again by transformers' save_pretrained."
        )
    if quantization != "none" and isinstance(error, RuntimeError | AssertionError):
        return f"{name!r} cannot run with {quantization} weights here: {text[:300]}; try another quantization, or none."
    telling = text and isinstance(error, OSError | ValueError | RuntimeError)
    return f"{name!r} cannot be loaded: {(text if telling else f'{type(error).__name__}: {text}')[:300]}"


def _lacking(error: ImportError) -> str:
    """Which package an error says is missing, or what else it says."""
    text = " ".join(str(error).split())
    named = re.search(r"requires the (\S+) library", text) or re.search(r"pip install [`'\"]?([\w.\[\]-]+)", text)
    return error.name or (named.group(1) if named else text[:160].rstrip("."))


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on an accelerator or on the host."""
    # On the host PyTorch raises a plain RuntimeError, which only its words tell from others.
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError | OSError)
        and any(words in str(error) for words in ("can't allocate memory", "Cannot allocate memory"))
    )


def first_line(error: Exception) -> str:
    """The beginning of an error's text, as half a sentence for a status line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
