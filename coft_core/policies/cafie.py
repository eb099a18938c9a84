"""CAFIE: weigh down what the prompt makes likelier than the same prompt about other groups does.

Banerjee, Java, Jandial, Shahid, Furniturewala, Krishnamurthy and Bhatia, "All Should Be Equal in the Eyes of LMs:
Counterfactually Aware Fair Text Generation", AAAI 2024, and the code that its authors published with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from coft_core.policies.base import FACTUAL, Past, parameter
from coft_core.policies.baseline import Decision
from coft_core.policies.cf_substitution import PREFIX, SubstitutingPolicy, own_pairs
from coft_core.policies.fusion import log_probabilities


@dataclass(frozen=True)
class CafiePolicy(SubstitutingPolicy):
    """Weigh each token by how much likelier the prompt makes it than its counterfactuals do.

    With ``p`` the distribution after the prompt, ``p_k`` that after its ``k``-th counterfactual, lambda and alpha::

        D_k = p - p_k                                  W_k = 1 + tanh(-lambda D_k)
        s_k = exp(|D_k|) / sum_j exp(|D_j|)            p_fair = sum_k s_k W_k p
        p_CAFIE  ~  alpha p_fair + (1 - alpha) p

    ``|.|`` is the Euclidean norm over the vocabulary: a counterfactual that answers otherwise counts more. The rule and
    the defaults are the authors', of their script for free text. Not reproduced are:

    - their word lists, for which the first substitutions of this program's tables or the reviewer's own are taken;
    - the weighing of the third reading by the second one's probabilities in their code, which the paper does not say;
    - the norm over all positions that are read; here it is the newest position's, whatever the length of the prompt;
    - contexts of other sentences before the prompt, and settings that are without effect in their script.
    """

    share: float = parameter(
        0.99, "number", "Share", "Of the weighed distribution beside the model's own; 0 is vanilla.", low=0.0, high=1.0,
        step=0.05, strength=True,
    )  # fmt: skip
    sharpness: float = parameter(
        100.0, "number", "Sharpness", "How fast a difference between groups turns into weight.", low=0.0, high=10_000.0,
        step=10.0,
    )  # fmt: skip
    # pyrefly: ignore[bad-override]
    most: int = parameter(2, "whole", "Counterfactuals", "At most so many; each is one more reading.", low=1, high=16)
    # pyrefly: ignore[bad-override]
    pairs: tuple[str, ...] = own_pairs()

    name: ClassVar[str] = "cafie"
    title: ClassVar[str] = "CAFIE"
    done: ClassVar[str] = "Compared"

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """Weigh, and mix with the model's own distribution."""
        log_p = log_probabilities(logits[FACTUAL], self.temperature)  # (G, V)
        names = [name for name in logits if name.startswith(PREFIX)]
        if not names:
            return Decision(log_p)
        others = log_probabilities(torch.stack([logits[name] for name in names]), self.temperature)  # (K, G, V)
        difference = log_p.exp() - others.exp()  # (K, G, V)
        counts = torch.linalg.vector_norm(difference, dim=-1).softmax(0)  # (K, G)
        weight = (counts[..., None] * (1 - torch.tanh(self.sharpness * difference))).sum(0)  # (G, V)
        # In logarithms, so that tokens of little probability are not lost.
        return Decision((log_p + (self.share * weight + (1 - self.share)).log()).log_softmax(-1))
