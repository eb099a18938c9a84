"""How far the log-probabilities of a loaded model lie apart between ways of running it, measured on a few tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coft_core.model.branches import BranchBatch
from coft_core.model.language_model import LanguageModel
from coft_core.model.memory_fit import fit_of, run_with_state

UNKNOWN = "unknown"
"""Number type of what does not say its own."""

FALLBACK = "float32"
"""The type whose bound stands in for types that were not measured."""

MEASURED = {"float32": 0.000022, "float16": 0.022, "bfloat16": 0.16}
"""Largest differences in nats, from ``python -m bench.decode --parts noise``; all are in ``docs/decoding_speed.md``."""

BOUNDS = {"float32": 0.00005, "float16": 0.05, "bfloat16": 0.2}
"""The measured differences in nats, rounded up to the next of 1, 2 and 5 times a power of ten."""

SAFETY = 3.0
"""By how much a long look may exceed the short one of a load; ``docs/decoding_speed.md`` has by how much it did."""


@dataclass(frozen=True, slots=True)
class NumericNoise:
    """The bound in nats on the difference of a log-probability between two ways of running one model.

    A number type that was not ``measured`` has the bound of :data:`FALLBACK`.
    """

    dtype: str
    nats: float
    measured: bool
    temperature: float = 1.0

    @property
    def text(self) -> str:
        """The bound in words: ``"0.00005 nats, float32"``, or ``"0.8 nats, bfloat16 at temperature 0.25"``."""
        bound = f"{float(f'{self.nats:.2g}'):.12f}".rstrip("0").rstrip(".")
        at = "" if self.temperature == 1 else f" at temperature {self.temperature:g}"
        if self.measured:
            return f"{bound} nats, {self.dtype}{at}"
        why = "the number type is unknown" if self.dtype == UNKNOWN else f"{self.dtype} was not measured"
        return f"{bound} nats{at}, {FALLBACK}'s, since {why}"


def noise_of(dtype: str | None, temperature: float = 1.0, measured: float | None = None) -> NumericNoise:
    """The bound for a number type, such as ``"bfloat16"``, at a temperature.

    ``measured`` is the largest difference that was found on a model itself, in nats at temperature 1.
    """
    name = dtype or UNKNOWN
    usual = BOUNDS.get(name, BOUNDS[FALLBACK])
    nats = max(usual, max(usual, SAFETY * (measured or 0.0)) / temperature)
    return NumericNoise(name, nats, name in BOUNDS, temperature)


LEAST_LOG_P = -14.0
"""Tokens that are likelier than this are compared: no threshold lies where a token is one in a million."""

_PREFIXES, _PROMPT, _STEPS, _TOKENS = (5, 10, 17), 12, 6, 23
_KEPT_AS = "noise"


def model_noise(model: LanguageModel, temperature: float = 1.0) -> NumericNoise:
    """The bound for a loaded model whose logits are divided by a temperature."""
    return noise_of(model.dtype_name, temperature, model.finding(_KEPT_AS))


def measure_noise(model: LanguageModel) -> None:
    """Run a few tokens through a model in several ways, and remember how far its log-probabilities lie apart.

    One forward over all tokens is compared with forwards over their beginnings, and with two rows that are continued
    token by token with a cache.
    """
    if "disk" in model.places:
        # Each forward would read all weights; the bound of the number type has to do.
        return
    size = min(_TOKENS, model.context_length)
    ids = model.arbitrary_tokens(2, size)  # (2, T)
    whole = _log_p(model, ids[0])  # (T, V)
    largest = max(_difference(_log_p(model, ids[0, :length]), whole[:length]) for length in _PREFIXES if length < size)
    for place, log_p in enumerate(_continued(model, ids), _PROMPT - 1):
        largest = max(largest, _difference(log_p, whole[place]))
    model.keep_finding(_KEPT_AS, largest)


def _difference(one: Tensor, other: Tensor) -> float:
    """Largest difference over likely tokens; 0 where the model returns NaN, which its first step says."""
    # An engine may return only the most likely tokens.
    compared = (one - other).abs()[(other > LEAST_LOG_P) & one.isfinite()]
    return float(compared.nan_to_num(0.0).max()) if compared.numel() else 0.0


def _log_p(model: LanguageModel, ids: Tensor) -> Tensor:
    """Log-probabilities after each token, ``(T, V)``, from one forward without a cache."""
    return torch.log_softmax(model.plain_logits(ids[None])[0].float(), dim=-1).cpu()


def _continued(model: LanguageModel, ids: Tensor) -> list[Tensor]:
    """Log-probabilities of the first row after its beginning and each further token, ``(V,)`` each, with a cache."""
    if model.engine is not None:
        return _continued_by(model, ids)
    ids = ids.to(model.device)  # (2, T)
    logits: list[Tensor] = []
    fit, cache, read = fit_of(model), None, 0
    if not fit.state:
        return logits
    rows = ids[:1] if fit.alone else ids
    for place in range(_PROMPT, min(_PROMPT + _STEPS, ids.shape[1])):
        newest, cache = run_with_state(model, fit, rows[:, read:place], cache, read)
        if cache is None:
            break
        logits.append(torch.log_softmax(newest[0].float(), dim=-1).cpu())
        read = place
    return logits


def _continued_by(model: LanguageModel, ids: Tensor) -> list[Tensor]:
    """The same by an engine other than transformers."""
    batch = BranchBatch(model, ids[:, :_PROMPT].tolist())
    try:
        logits = [batch.logits()]
        for place in range(_PROMPT, min(_PROMPT + _STEPS - 1, ids.shape[1])):
            batch.append(ids[:, place])
            logits.append(batch.logits())
        return [torch.log_softmax(rows[0].float(), dim=-1).cpu() for rows in logits]
    finally:
        batch.close()
