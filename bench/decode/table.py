"""The paper's efficiency table in its own layout: tokens a second, overhead and peak memory, batch 4, 256 tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench.decode import work as works
from bench.decode.shapes import model_of, weight_bytes
from bench.decode.work import TOP_P, work_of
from coft_core.decode.captured import prepare_model
from coft_core.errors import CoftError
from coft_core.experiments.speed import Decoding, decode, efficiency
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.policies.registry import METHODS

MODELS = {"llama-13b": "LLaMA-2-13B", "mistral-7b": "Mistral-7B-Inst."}
"""The table's models; only their shapes are measured."""

ROWS = {"vanilla": "Vanilla", "sdd": "SDD", "dexperts": "DExperts", "dtcd": "DT-CD", "coft": "COFT"}
BATCH, LENGTH, PROMPT = 4, 256, 64
EXPERT = "llama-134m"
"""Shape of the experts of DExperts, whose vocabulary the table's models have."""


@dataclass(frozen=True)
class Sizes:
    """What is measured; the paper's by default, smaller ones for a test."""

    models: tuple[str, ...] = tuple(MODELS)
    batch: int = BATCH
    length: int = LENGTH
    prompt: int = PROMPT
    expert: str = EXPERT


def table(device: str, repeats: int, dtype: str | None, sizes: Sizes) -> dict[str, Any]:
    """Measure every method on every model."""
    found = {name: _of_model(name, device, repeats, dtype, sizes) for name in sizes.models}
    return {"batch": sizes.batch, "length": sizes.length, "models": found, "lines": lines(found)}


def lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """The table's rows as in the paper: for each model method, tokens a second, overhead, peak memory in gigabytes."""
    rows = []
    for method, label in ROWS.items():
        cells = []
        for name in found:
            own = found[name][method]
            if "left_out" in own:
                cells.append(f"{label} & -- & -- & --")
                continue
            cost = "--" if method == "vanilla" else f"{100 * own['overhead']['median']:.1f}\\%"
            peak = "--" if own["peak_gigabytes"] is None else f"{own['peak_gigabytes']:.1f}"
            cells.append(f"{label} & {own['tokens_per_second']['median']:.1f} & {cost} & {peak}")
        rows.append(" & ".join(cells) + r" \\")
    return rows


def _of_model(name: str, device: str, repeats: int, dtype: str | None, sizes: Sizes) -> dict[str, Any]:
    model = model_of(name, device, dtype)
    prepare_model(model)
    expert = replace(model_of(sizes.expert, device, dtype or model.dtype_name), tokenizer_digest=model.tokenizer_digest)
    work = work_of(model, sizes.prompt, sizes.batch, sizes.length - 1)
    timed: dict[str, Decoding] = {}
    left_out: dict[str, Any] = {}
    for method in ROWS:
        try:
            policy = _policy(method, model)
            work.plans(policy, models=_models(policy, expert))
        except (CoftError, OSError) as error:
            left_out[method] = {"left_out": str(error)}
        else:
            timed[method] = partial(_run, work, policy=policy, expert=expert)
    whole = {
        method: {
            "tokens_per_second": own.tokens_per_second,
            "overhead": own.overhead,
            "peak_gigabytes": _gigabytes(model, own.peak),
        }
        for method, own in efficiency(model.device, work.batch, timed, repeats).items()
    }
    return {**whole, **left_out}


def _run(work: works.Work, mark: Callable[[], None], policy: Policy, expert: LanguageModel) -> None:
    decode(work.plans(policy, models=_models(policy, expert)), mark)


def _models(policy: Policy, expert: LanguageModel) -> dict[str, LanguageModel]:
    return dict.fromkeys(policy.models, expert)


def _policy(method: str, model: LanguageModel) -> Policy:
    if method == "coft":
        return works.coft(model)
    if method == "vanilla":
        return works.vanilla()
    known = next(item for item in METHODS if item.name == method)
    own = {"expert": "expert", "anti_expert": "anti-expert"} if method == "dexperts" else None
    return known.build(own, top_p=TOP_P, observe_masked=False)


def _gigabytes(model: LanguageModel, peak: int | None) -> float | None:
    """Peak of allocated memory, weights included."""
    return None if peak is None else (peak + weight_bytes(model)) / 1e9
