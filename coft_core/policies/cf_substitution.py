"""Counterfactual substitution: average what the model says of a prompt and of the same prompt about other groups.

Maudslay, Gonen, Cotterell and Teufel, "It's All in the Name: Mitigating Gender Bias with Name-Based Counterfactual Data
Substitution", EMNLP 2019, for what is substituted; Zheng, Zhou, Meng, Zhou and Huang, "Large Language Models Are Not
Robust Multiple Choice Selectors", ICLR 2024, section 4, for averaging a frozen model's predictions over counterfactual
prompts; Genest and Zidek, "Combining Probability Distributions", Statistical Science 1986, for the two averages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from coft_core.model.branches import BranchSpec
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import FACTUAL, Past, parameter
from coft_core.policies.baseline import BaselinePolicy, Decision, reading
from coft_core.policies.fusion import log_probabilities
from coft_core.text.counterfactuals import Substitutions, parse_pairs, rewording_version, substituted, substitutions
from coft_core.text.masking import MaskedPrompt

PREFIX = "substituted "
PROBABILITIES, LOGITS = "probabilities", "logits"
NOTHING_SUBSTITUTED = (
    "Nothing in this prompt can be substituted, so the policy decodes as vanilla does; mark words that name a "
    "group, or give substitutions of your own."
)


def own_pairs() -> Any:
    """The parameter with the reviewer's own substitutions."""
    return parameter(
        (), "texts", "Own substitutions",
        "Written “old = new; old = new”, one substitution each; none takes the shipped.", optional=True,
    )  # fmt: skip


class SubstitutingPolicy(BaselinePolicy):
    """A policy that reads the prompt and counterfactual substitutions of it, each in a branch of its own."""

    # Only named here: as fields they would come before those of the policies, which give them their order.
    most: int
    pairs: tuple[str, ...]
    # What is done with the substituted readings, to begin a sentence with.
    done: ClassVar[str]

    def __post_init__(self) -> None:
        """Validate; own substitutions must be readable."""
        super().__post_init__()
        for written in self.pairs:
            parse_pairs(written)

    @property
    def label(self) -> str:
        """The method, its parameters, and the tables that it substitutes by."""
        return f"{super().label}, rewording {rewording_version()}"

    def branches_for(self, model: LanguageModel, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """One reading a substitution."""
        chosen = chosen_substitutions(prompt, self.pairs, self.most)
        return tuple(
            reading(f"{PREFIX}{place}", model, substitution.text) for place, substitution in enumerate(chosen.found)
        )

    def notes(self, prompt: MaskedPrompt) -> tuple[str, ...]:
        """Which substitutions are read, and what none is known for."""
        return substitution_notes(chosen_substitutions(prompt, self.pairs, self.most), self.done)


@dataclass(frozen=True)
class CfSubstitutionPolicy(SubstitutingPolicy):
    """Average the distributions of the prompt and of its counterfactual substitutions.

    The COFT paper compares with "CF substitution" (section 5) and states neither what is substituted nor how the
    readings are combined. Here, with ``K`` substitutions and weight ``w``::

        p(token) = (p_factual(token) + w * sum_k p_k(token)) / (1 + w * K)

    The mean of probabilities is what marginalising over the attribute gives, ``p(y | x) = sum_a p(a) p(y | x, a)``, so
    that a token that only one reading finds likely stays possible. The mean of logits (the logarithmic pool, as in
    COFT's own fusion) keeps what all readings agree on. A substitution changes one attribute and every word that
    belongs to it, by the shipped tables (:mod:`coft_core.text.counterfactuals`).
    """

    # pyrefly: ignore[bad-override]
    most: int = parameter(4, "whole", "Substitutions", "At most so many; each is one more reading.", low=1, high=16)
    weight: float = parameter(
        1.0, "number", "Weight", "What each counts beside the prompt itself; 1 is the plain mean.", low=0.0, high=20.0,
        step=0.25, strength=True,
    )  # fmt: skip
    mean: str = parameter(
        PROBABILITIES, "choice", "Mean of", "Probabilities (a mixture), or logits (what all agree on).",
        choices=(PROBABILITIES, LOGITS),
    )  # fmt: skip
    # pyrefly: ignore[bad-override]
    pairs: tuple[str, ...] = own_pairs()

    name: ClassVar[str] = "cf_substitution"
    title: ClassVar[str] = "Counterfactual substitution"
    done: ClassVar[str] = "Averaged"

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """Average."""
        names = [FACTUAL, *(name for name in logits if name.startswith(PREFIX))]
        log_p = log_probabilities(torch.stack([logits[name] for name in names]), self.temperature)  # (K + 1, G, V)
        total = 1 + self.weight * (len(names) - 1)
        share = log_p.new_tensor([1 / total, *[self.weight / total] * (len(names) - 1)])[:, None, None]  # (K + 1, 1, 1)
        if self.mean == PROBABILITIES:
            return Decision((log_p + share.log()).logsumexp(0).log_softmax(-1))
        # A reading that counts nothing must not bring its impossible tokens in as 0 * -inf.
        weighted = torch.where(share > 0, share * log_p, 0.0)  # (K + 1, G, V)
        return Decision(weighted.sum(0).log_softmax(-1))


def chosen_substitutions(prompt: MaskedPrompt, pairs: Sequence[str], most: int) -> Substitutions:
    """The substitutions of a prompt, ``most`` at most: the reviewer's own by their ``pairs``, or the shipped ones."""
    text, spans = prompt.factual_text, prompt.spans
    if not pairs:
        shipped = substitutions(text, spans)
        return Substitutions(shipped.found[:most], shipped.left)
    candidates = (substituted(text, spans, parse_pairs(pair)) for pair in reversed(pairs))
    distinct = {substitution.text: substitution for substitution in candidates if substitution is not None}
    return Substitutions(tuple(reversed(distinct.values()))[:most], ())


def substitution_notes(chosen: Substitutions, done: str) -> tuple[str, ...]:
    """Which substitutions a prompt is averaged or compared with, and what none is known for."""
    left = tuple(f"No substitution is known for “{word}”, which all readings see." for word in chosen.left)
    if not chosen.found:
        return (NOTHING_SUBSTITUTED, *left)
    shown = " | ".join(substitution.label for substitution in chosen.found)
    readings = "reading" if len(chosen.found) == 1 else "readings"
    return (f"{done} with {len(chosen.found)} substituted {readings} of the prompt: {shown}.", *left)
