"""The phantom's measurements where one reading of the prompt decides, as with steered heads or a trained checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from bench.batching import batches
from bench.demo_model.phantom.gap_figures import UNIT
from bench.demo_model.phantom.gaps import gaps
from bench.demo_model.phantom.held_out import GROUPS, Wording, planted
from bench.demo_model.phantom.intervals import Figure, bootstrap, reduction
from bench.demo_model.phantom.outcomes import TOKEN_BUDGET, final_distribution, outcome_tokens
from bench.demo_model.phantom.writers import without_outcome
from bench.demo_model.scenarios import Scenario
from coft_core import LanguageModel, VanillaPolicy
from coft_core.model.branches import Hook, attached
from coft_core.model.forced import teacher_forced_logits

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Outcomes:
    """Probabilities of the favourable and the unfavourable outcome, each of shape (prompts, 2)."""

    read: Array
    drawn: Array


@dataclass(frozen=True)
class GapReading:
    """Bias gaps of one reading, for every pair of a setting and a family in which a bias was planted."""

    gaps: Array
    favourable: float
    mass: Array


def read_outcomes(model: LanguageModel, prompts: Sequence[Scenario], hooks: Sequence[Hook] = ()) -> Outcomes:
    """Reads the probabilities of the outcomes after each prompt."""
    policy = VanillaPolicy()
    rows = [tuple(model.tokenizer.encode(prompt.text)) for prompt in prompts]
    tokens = torch.tensor([outcome_tokens(model, prompt) for prompt in prompts])  # (P, 2)
    found = torch.zeros(2, *tokens.shape, dtype=torch.float64)  # (2, P, 2)
    with attached(model.module, hooks), torch.inference_mode():
        for part in batches([len(row) for row in rows], TOKEN_BUDGET):
            last = torch.cat(teacher_forced_logits(model, [(rows[i], (0,)) for i in part])).cpu()  # (G, V)
            drawn = final_distribution(policy.views(last[:, None], 0), policy.sampling)  # (G, V)
            for place, p in enumerate((torch.softmax(last.double(), -1), drawn)):
                found[place, part] = p.gather(-1, tokens[part])
    return Outcomes(*found.numpy())


def read_gaps(model: LanguageModel, wordings: Sequence[Wording], hooks: Sequence[Hook] = ()) -> GapReading:
    """Reads the bias gaps off a model: largest minus smallest favourable rate over a family's groups."""
    cells = planted()
    names = list(dict.fromkeys(setting for setting, _ in cells))
    kinds = len(cells) // len(names)
    found = read_outcomes(model, [prompt for wording in wordings for prompt in wording.prompts], hooks)
    shape = (len(names), kinds, -1, len(GROUPS), 2)
    rates = found.drawn.reshape(shape)[..., 0].mean(axis=2)  # (S, K, G)
    truth = np.array([[cell.factual for cell in row] for row in cells.values()])  # (S * K, G)
    biased = gaps(truth).reshape(len(names), kinds, -1).max(axis=1) > 0  # (S, F)
    return GapReading(
        gaps(rates).mean(axis=1)[biased], float(rates.mean()),
        found.read.sum(-1).reshape(shape[:-1]).mean(axis=(2, 3)).ravel(),
    )  # fmt: skip


def gap_row(before: GapReading, after: GapReading) -> dict[str, Figure]:
    """The gap after a change, what it took off, and how much the two outcomes together are still worth."""
    return {
        "gap": bootstrap(after.gaps, UNIT),
        "reduction": bootstrap(np.stack([before.gaps, after.gaps]), UNIT, reduction),
        "mass": bootstrap(after.mass, "settings and kinds"),
    }


def answers_right(
    model: LanguageModel, questions: Sequence[Scenario], hooks: Sequence[Hook] = ()
) -> npt.NDArray[np.bool_]:
    """Whether greedy decoding writes the right answer of each neutral question and its full stop."""
    pairs = []
    for question in questions:
        prompt = model.tokenizer.encode(without_outcome(question).text)
        pairs.append((prompt, model.tokenizer.encode(question.text)[len(prompt) :]))
    right = np.zeros(len(pairs), dtype=bool)
    with attached(model.module, hooks):
        for part in batches([len(prompt) + len(answer) for prompt, answer in pairs], TOKEN_BUDGET):
            for i, logits in zip(part, teacher_forced_logits(model, [pairs[i] for i in part]), strict=True):
                right[i] = logits.argmax(-1).tolist() == pairs[i][1]
    return right
