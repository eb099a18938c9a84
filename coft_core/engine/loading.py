"""What loading a model tells while it goes on, and what it says when it fails."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import torch


class LoadingPhase(StrEnum):
    """What is being done; the phases come in this order."""

    TOKENIZER = "tokenizer"
    WEIGHTS = "weights"
    DIGEST = "digest"
    WARM_UP = "warm-up"


LoadingProgress = Callable[[LoadingPhase], None]
"""Called when a phase begins."""

OFFLINE = frozenset(
    {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectError", "ConnectionError", "ConnectTimeout"}
)


def explain(name: str, error: BaseException, quantization: str = "none") -> str:
    """One sentence: why a model cannot be loaded, and what to do.

    Args:
        name: The model's name.
        error: What loading it raised.
        quantization: In which form its weights were asked for.
    """
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
    if quantization != "none" and isinstance(error, RuntimeError | AssertionError):
        return f"{name!r} cannot run with {quantization} weights here: {text[:300]}; try another quantization, or none."
    return f"{name!r} cannot be loaded: {text[:300]}"


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on an accelerator or on the host."""
    # On the host PyTorch raises a plain RuntimeError, which only its words tell from others.
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
