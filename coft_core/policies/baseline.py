"""Methods that draw from a distribution of their own, beside the factual and the watched masked branch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchSpec
from coft_core.model.group import BASE
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import FACTUAL, MASKED, Past, Policy, Views, parameters_of
from coft_core.policies.fusion import log_probabilities
from coft_core.text.masking import MaskedPrompt, prompt_ids
from coft_core.types import CertificateState


def reading(name: str, model: LanguageModel, text: str, role: str = BASE) -> BranchSpec:
    """A branch that reads a text with the model of a role, through the chat template where the prompt is."""
    return BranchSpec(name, prompt_ids(model.tokenizer, text, model.prompting), role)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy draws from at a step; tensors are ``(G, V)``."""

    log_p: Tensor
    certified: Tensor | None = None
    log_tau: float = -math.inf
    state: CertificateState = "none"
    margins: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class BaselinePolicy(Policy):
    """A policy that draws from a distribution of its own: subclasses decide, or say from which branch they draw."""

    observe_masked: bool = True
    method_branches: tuple[BranchSpec, ...] | None = field(default=None, repr=False, compare=False)

    # The model that runs the factual and the masked branch, and the branch that is drawn from where nothing is decided.
    audited: ClassVar[str] = BASE
    drawn_from: ClassVar[str] = FACTUAL

    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """The distribution that the method draws from."""
        return Decision(log_probabilities(logits[self.drawn_from], self.temperature))

    def branches_for(self, model: LanguageModel, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """Branches that the method needs besides the factual and the masked one; none by default."""
        return ()

    def bound(self, model: LanguageModel, models: Mapping[str, LanguageModel], prompt: MaskedPrompt) -> Self:
        """This policy with its own branches for a prompt, which are found once and not at every step."""
        return replace(self, method_branches=self.branches_for(model, prompt))

    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The factual branch, the masked one where it is needed or watched, and the method's own."""
        kind, plain = type(self), BaselinePolicy
        if self.method_branches is None and (kind.branches_for, kind.bound) != (plain.branches_for, plain.bound):
            raise InvalidInputError(f"The policy {self.title} looks at the prompt first; make a plan with it.")
        branches = [BranchSpec(FACTUAL, prompt.factual_ids, self.audited)]
        if self.observe_masked or self.needs_masked:
            branches.append(BranchSpec(MASKED, prompt.masked_ids, self.audited))
        return (*branches, *(self.method_branches or ()))

    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = (), pasts: Sequence[Past] = ()) -> Views:
        """The factual and the masked view of ``(G, B, V)`` beside the method's own distribution."""
        # Without names the branches are the factual and, if there are two, the masked one.
        names = branches or (FACTUAL, MASKED)[: logits.shape[1]]
        named = {name: logits[:, place].float() for place, name in enumerate(names)}  # (G, V) each
        factual = named[FACTUAL]
        masked = named.get(MASKED, factual)
        log_p = log_probabilities(factual, self.temperature)
        plain = type(self).decide is BaselinePolicy.decide and self.drawn_from == FACTUAL
        decision = Decision(log_p) if plain else self.decide(named, step, pasts)
        return Views(
            logits_factual=factual,
            logits_masked=masked,
            log_p_factual=log_p,
            log_p_masked=log_p if masked is factual else log_probabilities(masked, self.temperature),
            log_p_fused=decision.log_p,
            certified=decision.certified,
            log_tau=decision.log_tau,
            state=decision.state,
            certified_in=self.certified_in,
            margins=decision.margins,
        )

    @property
    def label(self) -> str:
        """The method's rule and its parameters, as fingerprints hold them."""
        parameters = parameters_of(self)
        values = ((item, getattr(self, item.name)) for item in parameters)
        told = {item.name: value for item, value in values if not item.later or value != item.default}
        rule = self.rule or self.name
        return f"{rule} {json.dumps(told, sort_keys=True, ensure_ascii=False)}" if parameters else rule
