"""Faster ways to run one new token a row through a model, prepared on request and described in words.

On CUDA the forward of a row's memory is captured as a graph, so that a step launches one thing and not a thousand
(:mod:`coft_core.engine.compiled_graph`). On a CPU the forward is traced, so that a step of a small model is not spent
in Python (:mod:`coft_core.engine.compiled_trace`). Neither is used before :func:`prepare` has seen that it gives the
logits of the eager forward; where it does not, the eager forward stays and :func:`path_of` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from coft_core.engine.compiled_function import first_line
from coft_core.engine.compiled_graph import EAGER_STEPS, GraphSteps
from coft_core.engine.compiled_trace import TracedSteps, why_not_traced
from coft_core.engine.memory.fit import Fit, fit_of
from coft_core.engine.memory.slots import Slots
from coft_core.engine.memory.step import Part, forward
from coft_core.engine.model import LanguageModel

PathName = Literal["CUDA graph", "traced", "eager"]
Progress = Callable[[float, str], None]
"""Told how much is done, 0 to 1, and what is being done."""

_KEPT_AS = "step path"
_PROBE_ROWS = ((7, 7), (5,))
"""Lengths of the rows on which a path must agree with the eager forward: another number of rows, other lengths."""


class Steps(Protocol):
    """Runs one new token a row."""

    @property
    def failure(self) -> str:
        """What went wrong since it was prepared; empty if nothing did."""

    def takes(self, parts: Sequence[Part]) -> bool:
        """Whether it may run these parts."""

    def logits(self, parts: Sequence[Part]) -> Tensor:
        """Logits that follow each row's token, ``(R, V)``; the rows' lengths stay as they are."""


@dataclass(frozen=True, slots=True)
class StepPath:
    """How single tokens are run.

    Attributes:
        name: The path.
        reason: Why it is eager; empty for the others.
        steps: What runs them; None where it is eager.
    """

    name: PathName
    reason: str = ""
    steps: Steps | None = None

    @property
    def text(self) -> str:
        """In words, as status lines show it: ``"CUDA graph"``, ``"traced"`` or ``"eager: <why>"``."""
        if self.steps is not None and self.steps.failure:
            return f"{self.name}, eager where there is none yet: {self.steps.failure}"
        return f"{self.name}: {self.reason}" if self.reason else self.name


NOT_PREPARED = StepPath("eager", "no faster path has been prepared")


def path_of(model: LanguageModel) -> StepPath:
    """The path that runs a model's single tokens."""
    kept = model.findings.get(_KEPT_AS)
    if kept is None or kept[0] is not model.module:
        return NOT_PREPARED
    found: StepPath = kept[1]
    return found


def prepare(model: LanguageModel, progress: Progress | None = None) -> StepPath:
    """Make the fastest path of a model that gives the eager forward's logits; it is used from then on.

    This takes a second or several. On a CPU it pays for a model that takes some hundred steps.

    Args:
        model: The model.
        progress: Told what is being done.

    Returns:
        The path.
    """
    report = progress or _say_nothing
    report(0.0, "Looking at the model's memory")
    fit = fit_of(model)
    path = _eager(model, fit)
    if path is None:
        if model.device.type == "cuda":
            report(0.2, "Capturing a step as a CUDA graph")
            path = _tried(model, fit, "CUDA graph", lambda: GraphSteps(model.module, fit), report)
        else:
            report(0.2, "Tracing a step")
            path = _tried(
                model, fit, "traced", lambda: TracedSteps(model.module, fit, _probe(model, fit, (6, 6))), report
            )
    model.findings[_KEPT_AS] = (model.module, path)
    report(1.0, f"Steps run {path.text}")
    return path


def forget(model: LanguageModel) -> None:
    """Go back to the eager forward and let go of what the path held."""
    model.findings.pop(_KEPT_AS, None)


def step_logits(model: LanguageModel, parts: Sequence[Part], fit: Fit) -> Tensor:
    """Logits that follow each row's last token, ``(R, V)``, by the path that was prepared where it takes the parts."""
    steps = path_of(model).steps
    one_token = all(part.ids.shape[1] == 1 for part in parts)
    if one_token and steps is not None and steps.takes(parts):
        return steps.logits(parts)
    return forward(model.module, parts, fit.layers, fit.accepts)


def _eager(model: LanguageModel, fit: Fit) -> StepPath | None:
    """Why nothing faster can be tried; None if it can."""
    if fit.kind != "slots":
        return StepPath("eager", fit.reason)
    if len(model.places) > 1 or len({parameter.device for parameter in model.module.parameters()}) > 1:
        return StepPath("eager", "the model is spread over several devices")
    if model.quantization != "none":
        return StepPath("eager", f"the weights are quantised ({model.quantization})")
    if model.device.type == "cuda":
        return None
    reason = why_not_traced(model.module, model.device)
    return StepPath("eager", reason) if reason else None


def _tried(model: LanguageModel, fit: Fit, name: PathName, build: Callable[[], Steps], report: Progress) -> StepPath:
    """The path if it can be made and agrees with the eager forward, else the eager one with what was wrong."""
    try:
        steps = build()
        report(0.6, "Comparing it with the eager forward")
        agree = all(_agrees(steps, _probe(model, fit, lengths), model, fit) for lengths in _PROBE_ROWS)
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        # Which operations an architecture uses that can be neither traced nor captured is known only by trying, and so
        # is whether this PyTorch has what tracing needs.
        return StepPath("eager", f"a faster path failed ({first_line(error)})")
    if steps.failure:
        return StepPath("eager", f"a faster path failed ({steps.failure})")
    if not agree:
        return StepPath("eager", "a faster path gave other logits")
    return StepPath(name, steps=steps)


def _agrees(steps: Steps, part: Part, model: LanguageModel, fit: Fit) -> bool:
    expected = forward(model.module, [part], fit.layers, fit.accepts).float()  # (R, V)
    # A memory has a graph only after some steps, and a trace is optimised in its first ones.
    for _ in range(EAGER_STEPS + 2):
        found = steps.logits([part]).float()
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.1
    return bool((found - expected).abs().max() <= tolerance * (1.0 + expected.abs().max()))


def _probe(model: LanguageModel, fit: Fit, lengths: Sequence[int]) -> Part:
    """A token to run behind rows of some lengths, which hold arbitrary tokens."""
    generator = torch.Generator().manual_seed(sum(lengths))
    shape = (len(lengths), max(lengths) + 1)
    ids = torch.randint(model.vocabulary_size, shape, generator=generator).to(model.device)
    slots = Slots(len(lengths), model.context_length, model.device)
    slots.reserve(shape[1])
    forward(model.module, [Part(slots, ids[:, :-1])], fit.layers, fit.accepts)
    slots.settle(lengths)
    return Part(slots, ids[:, -1:])


def _say_nothing(share: float, what: str) -> None:
    del share, what
