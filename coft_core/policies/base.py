"""What a decoding policy is: branches it needs, and a rule from their logits to a distribution and a certified set."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from torch import Tensor

from coft_core.engine.branches import BranchSpec
from coft_core.engine.model import LanguageModel
from coft_core.fingerprint import Fingerprint
from coft_core.masking.masker import MaskedPrompt
from coft_core.masking.settings import MaskSettings
from coft_core.sampling import Sampling
from coft_core.types import CertificateState, CertifiedIn


@dataclass(frozen=True, slots=True)
class FamilyView:
    """One attribute family's masked branch (factorized masks); tensors are ``(G, V)``.

    Attributes:
        family: The family.
        log_p: Log-probabilities where only this family is masked.
        certified: Membership in this family's certified set; None when nothing is certified.
        log_tau: The family's log-threshold; ``-inf`` when there is none.
        state: What it rests on.
    """

    family: str
    log_p: Tensor
    certified: Tensor | None
    log_tau: float
    state: CertificateState


@dataclass(frozen=True, slots=True)
class Views:
    """One step of G prompts as a policy sees it; all ``(G, V)`` and on the logits' device.

    Attributes:
        logits_factual: Raw logits of the factual branch.
        logits_masked: Raw logits of the masked branch.
        log_p_factual: Log-probabilities of the factual branch at the policy's temperature.
        log_p_masked: The same of the masked branch.
        log_p_fused: The distribution that the policy draws from; the fused one for COFT.
        certified: Membership in the certified set; None when the policy certifies nothing.
        log_tau: Log-threshold of the step; ``-inf`` when there is none.
        state: What the threshold rests on.
        families: The parts of a factorized mask; empty with one masked branch.
        certified_in: The readings by which the set is certified.
        margins: How far each token stands above the threshold, of several the one that is nearest to refusing it: in
            ``certified`` are those from 0 on; ``-inf`` for what a method refuses by a limit of its own. None where
            there is no threshold.
    """

    logits_factual: Tensor
    logits_masked: Tensor
    log_p_factual: Tensor
    log_p_masked: Tensor
    log_p_fused: Tensor
    certified: Tensor | None
    log_tau: float
    state: CertificateState
    families: tuple[FamilyView, ...] = ()
    certified_in: CertifiedIn = "both"
    margins: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What one chain has written so far, for policies that look back.

    Attributes:
        model: The audited model, for texts of tokens.
        prompt: The prompt.
        tokens: Generated tokens, the newest last.
        memory: What the policy's ``remember`` made of the steps so far; None at the start and for other policies.
    """

    model: LanguageModel
    prompt: MaskedPrompt
    tokens: tuple[int, ...] = ()
    memory: Any = None

    @property
    def text(self) -> str:
        """Text of the generated tokens."""
        return self.model.continuation_text(self.tokens)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What may be claimed for a run.

    Attributes:
        text: ``"certified"`` or ``"uncertified: ..."``, as pages and reports show it.
        mismatched: True when a calibration of another policy is used knowingly; no token then counts as certified.
    """

    text: str
    mismatched: bool = False


def compared_certificate(
    calibrated: Fingerprint, used: Fingerprint, accept_mismatch: bool, silence: str = ""
) -> Certificate:
    """What may be claimed for a policy whose thresholds were calibrated for another, or for the same.

    Args:
        calibrated: Fingerprint of the calibration.
        used: Fingerprint of the policy.
        accept_mismatch: Whether a mismatch is used knowingly.
        silence: Why none of the calibration's thresholds says anything; empty if one does.

    Raises:
        CalibrationMismatch: They differ and ``accept_mismatch`` is False.
    """
    if not accept_mismatch:
        calibrated.require_equal(used)
    if differences := calibrated.differences(used):
        names = ", ".join(name for name, _, _ in differences)
        return Certificate(f"uncertified: policy mismatch ({names})", mismatched=True)
    return Certificate(f"uncertified: {silence}" if silence else "certified")


@runtime_checkable
class Policy(Protocol):
    """A decoding policy; all policies share the loop of :mod:`coft_core.decode`."""

    title: ClassVar[str]
    """Its name on pages and in sentences."""

    @property
    def name(self) -> str:
        """Short name, as in ``--policy``."""

    @property
    def sampling(self) -> Sampling:
        """The sampling controls."""

    @property
    def mask(self) -> MaskSettings:
        """How spans are masked."""

    @property
    def needs_masked(self) -> bool:
        """Whether the policy itself reads the masked branch; one that only watches it can do without a sentinel."""

    def keeping(self, terms: Iterable[str]) -> Self:
        """This policy with more terms that are never masked; they are part of its fingerprint."""

    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """Branches that the policy needs for a prompt, factual first."""

    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = (), pasts: Sequence[Past] = ()) -> Views:
        """Turn the branches' logits into a distribution and a certified set.

        Args:
            logits: ``(G, B, V)``, branches in the order of :meth:`branches`.
            step: Step index, 0-based.
            branches: The branches' names; only policies whose branches depend on the prompt need them.
            pasts: What each of the G chains has written; only policies that look back need them.
        """

    def fingerprint(self, model: LanguageModel, detector: str) -> Fingerprint:
        """The policy's fingerprint on a model with a detector version."""

    def certificate(self, model: LanguageModel, detector: str) -> Certificate:
        """What may be claimed on this model with this detector version.

        Raises:
            CalibrationMismatch: The calibration belongs to another policy and was not accepted as such.
        """


@runtime_checkable
class Remembering(Protocol):
    """A policy whose distribution depends on the logits of earlier steps, not only on the newest ones."""

    def remember(self, memory: Any, logits: Tensor, token_id: int, branches: tuple[str, ...]) -> Any:
        """What to carry to the next step; a value of its own, since a chain can be taken back and forked.

        Args:
            memory: What was carried to this step; None at the first.
            logits: This step's logits, ``(B, V)``.
            token_id: The token that was written.
            branches: The branches' names.
        """


@runtime_checkable
class NeedsModels(Protocol):
    """A policy that runs further models beside the audited one."""

    @property
    def models(self) -> Mapping[str, str]:
        """For each name under which its branches ask for a model, what ``load_model`` takes."""


@runtime_checkable
class AsksWriters(Protocol):
    """A policy some of whose further models only write texts that it reads; those may have another tokenizer."""

    @property
    def writers(self) -> Collection[str]:
        """The names of these models, as in ``models``."""


@runtime_checkable
class Noting(Protocol):
    """A policy that has something to say of what it does with a prompt."""

    def notes(self, prompt: MaskedPrompt) -> tuple[str, ...]:
        """Sentences that must be shown with anything made from the prompt.

        Args:
            prompt: The prompt that the policy is prepared for.
        """


@runtime_checkable
class Preparing(Protocol):
    """A policy that has to look at a prompt before it can say which branches it needs."""

    def prepared(self, model: LanguageModel, models: Mapping[str, LanguageModel], prompt: MaskedPrompt) -> Policy:
        """This policy bound to a prompt, for instance with its rewritten text.

        Args:
            model: The audited model.
            models: Further models by name.
            prompt: The masked prompt.
        """


@runtime_checkable
class PreparesByWriting(Protocol):
    """A policy that may have a model write a text before it is bound to a prompt."""

    def writing_size(self, model: LanguageModel, models: Mapping[str, LanguageModel], text: str) -> int:
        """Bytes of keys and values that this takes at most; 0 where nothing is written.

        Args:
            model: The audited model.
            models: Further models by name.
            text: The reviewer's text.
        """


@runtime_checkable
class NeedsScorers(Protocol):
    """A policy that asks a toxicity scorer."""

    @property
    def scorers(self) -> Mapping[str, str]:
        """For each role, what :func:`coft_core.scorers.load_scorer` takes."""

    def with_scorers(self, scorers: Mapping[str, Any]) -> Policy:
        """This policy with its loaded scorers, by role."""
