"""What policies share that ask a toxicity scorer what a token would lead to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.policies.base import Past
from coft_core.policies.baseline import BaselinePolicy
from coft_core.policies.parameters import parameter
from coft_core.scorers.base import EMBEDDED, ToxicityScorer

SCORER = "scorer"


_ENDED = re.compile(r"[.!?][\"'”’)]*\s|\n")


def sentence_start(text: str) -> int:
    """Where the sentence that is being written begins: behind the last one that blank space or a line end follows."""
    ends = [found.end() for found in _ENDED.finditer(text)]
    return ends[-1] if ends else 0


@dataclass(frozen=True)
class ScoredPolicy(BaselinePolicy):
    """A policy with a scorer.

    Attributes:
        scorer: Name of the scorer, as :func:`coft_core.scorers.load_scorer` takes it.
        loaded: The scorer itself, once :meth:`with_scorers` has given it.
    """

    scorer: str = parameter(
        EMBEDDED, "model", "Toxicity scorer", "The embedded one, or a sequence classifier by id or folder."
    )
    loaded: ToxicityScorer | None = field(default=None, repr=False, compare=False)

    @property
    def scorers(self) -> Mapping[str, str]:
        """The scorer by the role that it plays."""
        return {SCORER: self.scorer}

    def with_scorers(self, scorers: Mapping[str, ToxicityScorer]) -> Self:
        """This policy with its loaded scorer."""
        return replace(self, loaded=scorers[SCORER])

    def toxicity(self, past: Past, candidates: Sequence[int]) -> list[float]:
        """How toxic the sentence that is being written becomes with each candidate as its next token.

        Sentences that are over are left out: one that is too toxic would otherwise refuse every token behind it.

        Raises:
            InvalidInputError: The scorer has not been loaded.
        """
        if self.loaded is None:
            raise InvalidInputError(f"The policy {self.title} has no scorer yet; make a plan with it.")
        texts = [past.model.continuation_text([*past.tokens, token]) for token in candidates]
        return self.loaded.score([text[sentence_start(text) :] for text in texts])

    def toxicities(self, pasts: Sequence[Past], candidates: Tensor) -> Tensor:
        """The same for several chains; ``candidates`` and the result are ``(G, K)``."""
        rows = [self.toxicity(past, own) for past, own in zip(pasts, candidates.tolist(), strict=True)]
        return torch.tensor(rows, device=candidates.device)
