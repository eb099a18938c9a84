"""GeDi: a class-conditional reading judges every next token by Bayes' rule, and the model follows its judgement.

Krause et al., "GeDi: Generative Discriminator Guided Sequence Generation", Findings of EMNLP 2021, sections 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from coft_core.model.branches import BranchSpec
from coft_core.model.group import BASE
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import FACTUAL, Past, parameter
from coft_core.policies.baseline import BaselinePolicy, Decision, reading
from coft_core.policies.dexperts import FAIR, UNFAIR
from coft_core.policies.fusion import log_probabilities
from coft_core.text.masking import MaskedPrompt

WANTED, UNWANTED = "wanted", "unwanted"
DISCRIMINATOR = "discriminator"


@dataclass(frozen=True)
class GediPolicy(BaselinePolicy):
    """Weight the model's distribution with the posterior of the wanted class.

    The class readings give ``P(c | x_1..t)`` for every candidate, proportional to ``P(c)`` times the product of
    ``P(x_i | x_<i, c)`` to the power ``scale / t`` (the paper's equation 5). The next token is drawn from
    ``P(x_t) * P(wanted | x_1..t) ** omega`` (equation 6), within the candidates that the filter keeps: sorted by their
    posterior until their mass under that weighted distribution reaches ``rho`` (``1 - filter_p`` in the authors' code),
    and every one whose posterior exceeds ``certain`` (equation 7).

    The paper's class-conditional model is the discriminator, with its control codes as the two texts. Without one, the
    audited model with an instruction replaces it. In the authors' code the product includes the prompt's tokens, the
    temperature comes last, and repeated tokens are penalised.
    """

    discriminator: str | None = parameter(
        None, "model", "Discriminator", "A class-conditional checkpoint; none prompts the model.", optional=True
    )
    wanted_text: str = parameter(FAIR, "text", "Wanted class", "Control code or instruction before the prompt.")
    unwanted_text: str = parameter(UNFAIR, "text", "Unwanted class", "Control code or instruction before the prompt.")
    omega: float = parameter(
        30.0, "number", "Omega", "Power of the posterior.", low=0.0, high=200.0, step=5.0, strength=True
    )
    rho: float = parameter(
        0.2, "number", "Rho", "Mass of the weighted distribution that the filter keeps.", low=0.0, high=1.0
    )
    certain: float = parameter(0.97, "number", "Certain", "Tokens above this posterior stay.", low=0.0, high=1.0)
    scale: float = parameter(1.0, "number", "Scale", "Power of the likelihood.", low=0.0, high=10.0)
    prior: float = parameter(0.5, "number", "Prior", "Probability of the wanted class.", low=0.001, high=0.999)

    name: ClassVar[str] = "gedi"
    title: ClassVar[str] = "GeDi"
    rule: ClassVar[str] = "gedi, weighted filter"
    looks_back: ClassVar[bool] = True

    @property
    def models(self) -> dict[str, str]:
        """The discriminator, where one is named."""
        return {DISCRIMINATOR: self.discriminator} if self.discriminator else {}

    def branches_for(self, model: LanguageModel, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The prompt after each of the two texts."""
        role = DISCRIMINATOR if self.discriminator else BASE
        texts = {WANTED: self.wanted_text, UNWANTED: self.unwanted_text}
        return tuple(reading(name, model, before + prompt.factual_text, role) for name, before in texts.items())

    def remember(self, memory: Any, logits: Tensor, token_id: int, branches: tuple[str, ...]) -> tuple[float, float]:
        """Log-likelihood of the generated tokens in both classes."""
        before = memory or (0.0, 0.0)
        both = torch.stack([logits[branches.index(name)].float() for name in (WANTED, UNWANTED)])  # (2, V)
        wanted, unwanted = torch.log_softmax(both, dim=-1)[:, token_id].tolist()
        return before[0] + wanted, before[1] + unwanted

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """Weight by the posterior and filter."""
        log_p = log_probabilities(logits[FACTUAL], self.temperature)  # (G, V)
        posterior = self._log_posterior(logits, step, pasts)  # (G, V)
        weighted = (log_p + self.omega * posterior).log_softmax(-1)  # (G, V)
        kept = self._kept(weighted, posterior)
        return Decision(weighted.masked_fill(~kept, float("-inf")).log_softmax(-1))

    def _log_posterior(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Tensor:
        """``log P(wanted | x_1..t)`` of every candidate, ``(G, V)``."""
        sums = torch.tensor([past.memory or (0.0, 0.0) for past in pasts], device=logits[WANTED].device)  # (G, 2)
        classes = [
            math.log(prior) + self.scale / (step + 1) * (sums[:, place, None] + logits[name].log_softmax(-1))
            for place, (name, prior) in enumerate(((WANTED, self.prior), (UNWANTED, 1.0 - self.prior)))
        ]
        return torch.stack(classes).log_softmax(0)[0]  # (G, V)

    def _kept(self, weighted: Tensor, posterior: Tensor) -> Tensor:
        order = posterior.argsort(dim=-1, descending=True, stable=True)  # (G, V)
        p = weighted.gather(-1, order).double().exp()
        inside = p.cumsum(-1) - p < self.rho  # (G, V), by rank
        kept = torch.zeros_like(inside).scatter(-1, order, inside)
        return kept | (posterior > math.log(max(self.certain, 1e-30)))
