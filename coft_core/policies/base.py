"""What a decoding policy is: branches it needs, and a rule from their logits to a distribution and a certified set."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint
from coft_core.model.branches import BranchSpec
from coft_core.model.language_model import LanguageModel
from coft_core.text.masking import MaskedPrompt, MaskSettings
from coft_core.text.sentinel import resolve_sentinel
from coft_core.types import CertificateState, CertifiedIn, Sampling

Kind = Literal["number", "whole", "flag", "text", "texts", "choice", "model", "file"]
"""What a parameter is: a real or whole number, yes or no, a text, several texts, one of several names, a model (an id
or a folder), or a file."""

_KEY = "parameter"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a policy.

    Attributes:
        name: Its name in the policy.
        kind: What it is.
        default: Its value unless chosen otherwise.
        title: Its name on pages.
        help: What it does, in a sentence.
        low: Smallest value of a number; None leaves it open.
        high: Largest value of a number; None leaves it open.
        step: Sensible step of a slider.
        choices: The names to choose from.
        strength: Whether it says how strongly the policy acts, so that sweeps turn it.
        optional: Whether it may be left empty.
        later: Whether it came in a later version than its policy: at its default it is no part of fingerprints, so that
            those of earlier versions still agree.
    """

    name: str
    kind: Kind
    default: Any
    title: str
    help: str
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: tuple[str, ...] = ()
    strength: bool = False
    optional: bool = False
    later: bool = False

    def check(self, value: Any) -> None:
        """Refuse a value that the parameter cannot take.

        Raises:
            InvalidInputError: It has another type or lies outside the range.
        """
        if value is None or (value == "" and self.kind in ("text", "model", "file")):
            if not self.optional:
                raise InvalidInputError(f"{self.title} is missing; {self._wanted()}.")
            return
        if not self._fits(value):
            raise InvalidInputError(f"{self.title} is {value!r}; {self._wanted()}.")

    def _fits(self, value: Any) -> bool:
        if self.kind in ("number", "whole"):
            if isinstance(value, bool) or not isinstance(value, int if self.kind == "whole" else (int, float)):
                return False
            inside = (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
            return math.isfinite(value) and inside
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "texts":
            return isinstance(value, tuple) and all(isinstance(item, str) and item.strip() for item in value)
        return isinstance(value, str) and (self.kind != "choice" or value in self.choices)

    def _wanted(self) -> str:
        if self.kind in ("number", "whole"):
            noun = "a whole number" if self.kind == "whole" else "a number"
            if self.low is not None and self.high is not None:
                return f"give {noun} from {self.low:g} to {self.high:g}"
            return f"give {noun}" if self.low is None else f"give {noun} of at least {self.low:g}"
        wanted = {
            "flag": "say yes or no",
            "text": "give a text",
            "texts": "give one or more texts",
            "choice": f"choose {' or '.join(self.choices)}",
            "model": "give the id or the folder of a model",
            "file": "give the path of a file",
        }
        return wanted[self.kind]


def parameter(default: Any, kind: Kind, title: str, help: str, **rest: Any) -> Any:
    """A dataclass field that is a policy's parameter; see :class:`Parameter` for the arguments."""
    return field(default=default, metadata={_KEY: {"kind": kind, "title": title, "help": help, **rest}})


def parameters_of(policy: Any) -> tuple[Parameter, ...]:
    """The parameters that a policy or its class declares, in their order."""
    return tuple(_described(item) for item in fields(policy) if _KEY in item.metadata)


def check_parameters(policy: Any) -> None:
    """Check every parameter of a policy.

    Raises:
        InvalidInputError: One is of another type or outside its range; the sentence names it.
    """
    for own in parameters_of(policy):
        own.check(getattr(policy, own.name))


def _described(item: Field[Any]) -> Parameter:
    return Parameter(name=item.name, default=item.default, **item.metadata[_KEY])


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


def policy_fingerprint(
    model: LanguageModel,
    lam: float,
    sampling: Sampling,
    mask: MaskSettings,
    detector: str,
    estimator: str,
    source: str,
    method: str = "",
) -> Fingerprint:
    """Collect everything that a threshold depends on besides the calibration contexts.

    Args:
        model: The model.
        lam: Fusion weight.
        sampling: Sampling controls.
        mask: Masking settings.
        detector: The span detector's version.
        estimator: Threshold estimator.
        source: Context source.
        method: The method with its parameters; empty for COFT and vanilla decoding, which the other fields describe.
    """
    sentinel = resolve_sentinel(model.tokenizer, mask.sentinel)
    return Fingerprint(
        model=model.name,
        revision=model.revision,
        weights=model.weights_digest,
        tokenizer=model.tokenizer_digest,
        dtype=model.dtype_name,
        chat_template=model.chat_template_digest,
        lam=float(lam),
        temperature=float(sampling.temperature),
        top_p=float(sampling.top_p),
        top_k=int(sampling.top_k),
        mask_mode=mask.label,
        sentinel="" if sentinel is None else sentinel.text,
        detector=detector,
        estimator=estimator,
        source=source,
        method=method,
        rendering=model.rendering_label,
    )


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
    """A decoding policy; all policies share the loop of :mod:`coft_core.decode.loop`."""

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
