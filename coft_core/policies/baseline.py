"""What all policies without fusion have in common: controls, the watched masked branch, fingerprint and certificate."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.model.branches import BranchSpec
from coft_core.model.group import BASE
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Certificate, Past, Views, check_parameters, parameters_of, policy_fingerprint
from coft_core.policies.fusion import log_probabilities
from coft_core.text.masking import DEFAULT_HINT, MaskedPrompt, MaskMode, MaskSettings, prompt_ids
from coft_core.types import CertificateState, CertifiedIn, Sampling


def reading(name: str, model: LanguageModel, text: str, role: str = BASE) -> BranchSpec:
    """A branch that reads a text, put through the model's chat template where the prompt is.

    Args:
        name: Name of the branch.
        model: The audited model, for its tokenizer and template.
        text: The text.
        role: Name under which the branch asks for its model.

    Raises:
        InvalidInputError: The text is empty.
    """
    return BranchSpec(name, prompt_ids(model.tokenizer, text, model.prompting), role)


def framed(text: str, before: str = "", after: str = "") -> str:
    """A text between two others."""
    return f"{before}{text}{after}"


FACTUAL, MASKED = "factual", "masked"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy draws from at a step; tensors are ``(G, V)``.

    Attributes:
        log_p: Log-probabilities at the policy's temperature.
        certified: Tokens that it accepts; None when it accepts all.
        log_tau: Log-threshold behind ``certified``; ``-inf`` when there is none.
        state: What the threshold rests on.
        margins: As in :class:`coft_core.policies.base.Views`.
    """

    log_p: Tensor
    certified: Tensor | None = None
    log_tau: float = float("-inf")
    state: CertificateState = "none"
    margins: Tensor | None = None


@dataclass(frozen=True)
class BaselinePolicy(ABC):
    """A policy that draws from a distribution of its own beside the factual and the watched masked branch.

    Subclasses name the method, declare the branches that they need besides, and decide.

    Attributes:
        temperature: Sampling temperature.
        top_p: Nucleus mass; 1 is off.
        top_k: Tokens kept; 0 is off.
        observe_masked: Run the masked branch beside, so that an audit can show the attribute sensitivity of the chain.
            Without it, and where the method does not need it itself, the masked view repeats the factual one.
        sentinel: Sentinel text of the mask; None takes the tokenizer's own.
        mask_mode: ``"hard"`` or ``"soft"``.
        mask_hint: Hint of the soft mask.
        whitelist: Terms that are never masked.
        own: The method's own branches for one prompt, once :meth:`prepared` has found them.

    Raises:
        InvalidInputError: A parameter is outside its range.
    """

    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    observe_masked: bool = True
    sentinel: str | None = None
    mask_mode: MaskMode = "hard"
    mask_hint: str = DEFAULT_HINT
    whitelist: tuple[str, ...] = ()
    own: tuple[BranchSpec, ...] | None = field(default=None, repr=False, compare=False)

    method: ClassVar[str]
    """Short name of the method, as in ``--policy``."""

    title: ClassVar[str]
    """Its name on pages and in sentences."""

    rule: ClassVar[str] = ""
    """What fingerprints call the method since its rule was changed; empty where it is the first one."""

    certified_in: ClassVar[CertifiedIn] = "both"
    """The readings by which it certifies, if it does."""

    audited: ClassVar[str] = "base"
    """Name of the model that runs the factual and the masked branch."""

    def __post_init__(self) -> None:
        """Validate by building what the parameters are for."""
        _ = self.sampling, self.mask
        check_parameters(self)

    @property
    def name(self) -> str:
        """Short name of the policy."""
        return self.method

    @property
    def sampling(self) -> Sampling:
        """The sampling controls."""
        return Sampling(self.temperature, self.top_p, self.top_k)

    @property
    def mask(self) -> MaskSettings:
        """How spans are masked in the watched branch."""
        return MaskSettings(self.mask_mode, self.mask_hint, self.sentinel, whitelist=self.whitelist)

    @property
    def needs_masked(self) -> bool:
        """Whether the method itself reads the masked branch."""
        return False

    def keeping(self, terms: Iterable[str]) -> Self:
        """This policy with more terms that are never masked; they are part of its fingerprint."""
        return replace(self, whitelist=self.mask.keeping(terms).whitelist)

    def own_branches(
        self, model: LanguageModel, models: Mapping[str, LanguageModel], prompt: MaskedPrompt
    ) -> tuple[BranchSpec, ...]:
        """Branches that the method needs besides the factual and the masked one; none by default.

        Args:
            model: The audited model.
            models: Further models by name.
            prompt: The masked prompt.
        """
        return ()

    def prepared(self, model: LanguageModel, models: Mapping[str, LanguageModel], prompt: MaskedPrompt) -> Self:
        """This policy bound to a prompt: its own branches are found once and not at every step."""
        return replace(self, own=self.own_branches(model, models, prompt))

    @abstractmethod
    def decide(self, logits: Mapping[str, Tensor], step: int, pasts: Sequence[Past]) -> Decision:
        """The distribution that the method draws from.

        Args:
            logits: Raw logits by branch name, ``(G, V)`` float32 each.
            step: Step index, 0-based.
            pasts: What each chain has written; one a chain. Whatever depends on the prompt is read off these, since
                several prompts may be decided at once.
        """

    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The factual branch, the masked one where it is needed or watched, and the method's own.

        Raises:
            InvalidInputError: The method has branches of its own and the policy is not prepared for a prompt.
        """
        if self.own is None and type(self).own_branches is not BaselinePolicy.own_branches:
            raise InvalidInputError(f"The policy {self.title} looks at the prompt first; make a plan with it.")
        found = [BranchSpec(FACTUAL, prompt.factual_ids, self.audited)]
        if self.observe_masked or self.needs_masked:
            found.append(BranchSpec(MASKED, prompt.masked_ids, self.audited))
        return (*found, *(self.own or ()))

    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = (), pasts: Sequence[Past] = ()) -> Views:
        """The factual and the masked view beside the method's own distribution.

        Args:
            logits: ``(G, B, V)``.
            step: Step index, 0-based.
            branches: Names of the branches; without them they are the factual and, if there are two, the masked one.
            pasts: What each chain has written.
        """
        names = branches or (FACTUAL, MASKED)[: logits.shape[1]]
        named = {name: logits[:, place].float() for place, name in enumerate(names)}  # (G, V) each
        factual = named[FACTUAL]
        masked = named.get(MASKED, factual)
        own = self.decide(named, step, pasts)
        return Views(
            logits_factual=factual,
            logits_masked=masked,
            log_p_factual=log_probabilities(factual, self.temperature),
            log_p_masked=log_probabilities(masked, self.temperature),
            log_p_fused=own.log_p,
            certified=own.certified,
            log_tau=own.log_tau,
            state=own.state,
            certified_in=self.certified_in,
            margins=own.margins,
        )

    def fingerprint(self, model: LanguageModel, detector: str) -> Fingerprint:
        """This policy's fingerprint on a model: its method with all its parameters, lambda 0, no calibration."""
        return policy_fingerprint(
            model,
            lam=0.0,
            sampling=self.sampling,
            mask=self.mask,
            detector=detector,
            estimator="none",
            source="none",
            method=self.label,
        )

    def certificate(self, model: LanguageModel, detector: str) -> Certificate:
        """Uncertified, unless a method says otherwise."""
        return Certificate(f"uncertified: {self.title} gives no certificate")

    @property
    def label(self) -> str:
        """The method's rule and its parameters, as fingerprints hold them."""
        own = {item.name: getattr(self, item.name) for item in parameters_of(self)}
        later = {item.name: item.default for item in parameters_of(self) if item.later}
        told = {name: value for name, value in own.items() if name not in later or value != later[name]}
        rule = self.rule or self.method
        return f"{rule} {json.dumps(told, sort_keys=True, ensure_ascii=False)}" if own else rule
