"""What a decoding policy is: branches it needs, and a rule from their logits to a distribution and a certified set."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from coft_core.conformal.calibration import Calibration
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import SINGLE_BRANCH, Fingerprint
from coft_core.model.branches import BranchSpec
from coft_core.model.language_model import LanguageModel
from coft_core.scorers.base import ToxicityScorer
from coft_core.text.masking import DEFAULT_HINT, MaskedPrompt, MaskMode, MaskSettings, check_whitelist
from coft_core.text.sentinel import resolve_sentinel
from coft_core.types import Certificate, CertificateKind, CertificateState, CertifiedIn, Sampling

FACTUAL, MASKED = "factual", "masked"
"""Names of the branch that reads the prompt as it is, and of the one that reads it with everything masked."""

Kind = Literal["number", "whole", "flag", "text", "texts", "choice", "model", "file"]
"""What a parameter is: a real or whole number, yes or no, a text, several texts, one of several names, a model (an id
or a folder), or a file."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a policy: its name in the policy and on pages, what it does, and its range."""

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
    # Came in a later version than its policy: at its default it is no part of fingerprints, so that earlier ones agree.
    later: bool = False

    def check(self, value: Any) -> None:
        """Refuse a value that the parameter cannot take."""
        if value is None or (value == "" and self.kind in ("text", "model", "file")):
            if not self.optional:
                raise InvalidInputError(f"{self.title} is missing; {self.wanted}.")
            return
        if not self._fits(value):
            raise InvalidInputError(f"{self.title} is {value!r}; {self.wanted}.")

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

    @property
    def span(self) -> str:
        """The range of a number in words; empty where it has none, or where there is no number."""
        if self.low is None:
            return ""
        return f"of at least {self.low:g}" if self.high is None else f"from {self.low:g} to {self.high:g}"

    @property
    def wanted(self) -> str:
        """What to do in place of a value that is refused, as the end of a sentence."""
        return _WANTED[self.kind].format(span=self.span, choices=" or ".join(self.choices)).rstrip()


_WANTED: Mapping[Kind, str] = MappingProxyType({
    "number": "give a number {span}", "whole": "give a whole number {span}", "flag": "say yes or no",
    "text": "give a text", "texts": "give one or more texts", "choice": "choose {choices}",
    "model": "give the id or the folder of a model", "file": "give the path of a file",
})  # fmt: skip


def parameter(default: Any, kind: Kind, title: str, help: str, **rest: Any) -> Any:
    """A dataclass field that is a policy's parameter; see :class:`Parameter` for the arguments."""
    return field(default=default, metadata={"kind": kind, "title": title, "help": help, **rest})


def parameters_of(policy: Any) -> tuple[Parameter, ...]:
    """The parameters that a policy or its class declares, in their order."""
    described = (item for item in fields(policy) if item.metadata)
    return tuple(Parameter(name=item.name, default=item.default, **item.metadata) for item in described)


@dataclass(frozen=True, slots=True)
class FamilyView:
    """One attribute family's masked branch (factorized masks); tensors are ``(G, V)``."""

    family: str
    log_p: Tensor
    certified: Tensor | None
    log_tau: float
    state: CertificateState


@dataclass(frozen=True, slots=True)
class Ends:
    """What is certain of steps of which the engine returned only the most likely tokens; see ``policies.bounds``.

    Attributes:
        log_p: What is drawn from, ``(G, V)``.
        allowed: From which tokens, ``(G, V)``; None from all.
        missing: Where each view has only an upper end, ``(3, G, V)``.
        sizes: Between which sizes the certified set lies, numeric noise included, ``(G, 2)``.
        figures: What ``step_figures`` gives, at least, ``(G, 10)``.
        seen: Tokens that each branch returned, at least, ``(G,)``.
        slack: By how many nats each view's known log-probabilities may be higher, ``(G, 3)``.
        undecided: Tokens, at most, that may or may not be in the certified set, ``(G,)``.
        exact: Whether a draw gives what all tokens would, ``(G,)``.
        best: Whether the likeliest token is certain, ``(G,)``.
    """

    log_p: Tensor
    allowed: Tensor | None
    missing: Tensor
    sizes: Tensor
    figures: Tensor
    seen: Tensor
    slack: Tensor
    undecided: Tensor
    exact: Tensor
    best: Tensor


@dataclass(frozen=True, slots=True)
class Views:
    """One step of G prompts as a policy sees it; all ``(G, V)`` and on the logits' device."""

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
    # How far each token lies above the threshold, of several the nearest to refusing it; ``-inf`` for what a method
    # refuses by a limit of its own.
    margins: Tensor | None = None
    ends: Ends | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What one chain has written so far, for policies that look back."""

    model: LanguageModel
    prompt: MaskedPrompt
    tokens: tuple[int, ...] = ()
    memory: Any = None


def compared_certificate(
    calibrated: Fingerprint, used: Fingerprint, accept_mismatch: bool, silence: str = ""
) -> Certificate:
    """What may be claimed for a policy by thresholds; ``silence`` says why none of these says anything, or is empty."""
    if not accept_mismatch:
        calibrated.require_equal(used)
    if differences := calibrated.differences(used):
        return Certificate.mismatch(", ".join(name for name, _, _ in differences))
    return Certificate.uncertified(silence) if silence else Certificate(CertificateKind.CERTIFIED)


def factual_only(calibration: Calibration, used: Fingerprint) -> Fingerprint:
    """What a policy's fingerprint comes to for a calibration of the factual reading, on which no mask has a say."""
    free = {name: getattr(calibration.fingerprint, name) for name in ("lam", "mask_mode", "sentinel", "detector")}
    return replace(used, method=SINGLE_BRANCH, **free)


@dataclass(frozen=True, kw_only=True)
class Policy(ABC):
    """A decoding policy: it names its branches and turns their logits into a distribution and a certified set.

    Attributes:
        temperature: Sampling temperature, the same in every branch.
        top_p: Nucleus mass; 1 is off.
        top_k: Tokens kept; 0 is off.
        sentinel: Sentinel text of the mask; None takes the tokenizer's own.
        mask_mode: ``"hard"``, or ``"soft"`` with ``mask_hint``.
        whitelist: Terms that are never masked.
        accept_mismatch: Use a calibration of another policy knowingly; no token then counts as certified.
        shared_noise: Draw with noise that each token keeps in every prompt; see :class:`coft_core.types.Sampling`.

    Raises:
        InvalidInputError: A parameter is of another type or outside its range.
    """

    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    sentinel: str | None = None
    mask_mode: MaskMode = "hard"
    mask_hint: str = DEFAULT_HINT
    whitelist: tuple[str, ...] = ()
    accept_mismatch: bool = False
    shared_noise: bool = False

    # As in --policy, and on pages and in sentences.
    name: ClassVar[str]
    title: ClassVar[str]
    # What fingerprints call the method since its rule was changed.
    rule: ClassVar[str] = ""
    certified_in: ClassVar[CertifiedIn] = "both"
    # Why nothing is certified without a calibration; empty where the method gives no certificate.
    unclaimed: ClassVar[str] = ""
    # Whether its distribution depends on the logits of earlier steps, by remember().
    looks_back: ClassVar[bool] = False
    # Whether views_at() reads steps at several positions and under several calibrations at once.
    reads_rowwise: ClassVar[bool] = False
    # Whether it can be read from the most likely tokens only.
    takes_bounds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Validate, the controls by building what they are for."""
        _ = self.sampling, self.mask
        for item in parameters_of(self):
            item.check(getattr(self, item.name))

    @abstractmethod
    def branches(self, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """Branches that the policy needs for a prompt that it is bound to, factual first."""

    @abstractmethod
    def views(self, logits: Tensor, step: int, branches: tuple[str, ...] = (), pasts: Sequence[Past] = ()) -> Views:
        """Turn the branches' logits ``(G, B, V)`` at a step (0-based) into a distribution and a certified set.

        Names are needed by policies whose branches depend on the prompt, pasts by those that look back.
        """

    @cached_property
    def sampling(self) -> Sampling:
        """The sampling controls."""
        return Sampling(self.temperature, self.top_p, self.top_k, self.shared_noise)

    @property
    def mask(self) -> MaskSettings:
        """How spans are masked."""
        return MaskSettings(self.mask_mode, self.mask_hint, self.sentinel, whitelist=self.whitelist)

    def keeping(self, terms: Iterable[str]) -> Self:
        """This policy with more terms that are never masked; they are part of its fingerprint."""
        return replace(self, whitelist=check_whitelist((*self.whitelist, *terms)))

    @property
    def needs_masked(self) -> bool:
        """Whether the policy itself reads the masked branch; one that only watches it can do without a sentinel."""
        return False

    # What it runs besides the audited model.

    @property
    def models(self) -> Mapping[str, str]:
        """For each name under which its branches ask for a further model, what ``load_model`` takes."""
        return {}

    @property
    def writers(self) -> Collection[str]:
        """Names in :attr:`models` of those that only write texts that it reads; they may have another tokenizer."""
        return ()

    @property
    def scorers(self) -> Mapping[str, str]:
        """For each role, what :func:`coft_core.scorers.load_scorer` takes."""
        return {}

    def with_scorers(self, scorers: Mapping[str, ToxicityScorer]) -> Self:
        """This policy with its loaded scorers, by role."""
        return self

    # What it does with a prompt and a chain.

    def bound(self, model: LanguageModel, models: Mapping[str, LanguageModel], prompt: MaskedPrompt) -> Self:
        """This policy bound to a prompt, for instance with its rewritten text; ``models`` are the further ones."""
        return self

    def writing_size(self, model: LanguageModel, models: Mapping[str, LanguageModel], text: str) -> int:
        """Bytes of keys and values that :meth:`bound` takes at most where a model writes a text for it; else 0."""
        return 0

    def notes(self, prompt: MaskedPrompt) -> tuple[str, ...]:
        """Sentences that must be shown with anything made from a prompt that the policy is bound to."""
        return ()

    def remember(self, memory: Any, logits: Tensor, token_id: int, branches: tuple[str, ...]) -> Any:
        """What to carry to the next step, of what was carried to this one (None at first) and its logits ``(B, V)``.

        It is a value of its own, since a chain can be taken back and forked.
        """
        return None

    # What it certifies by.

    @property
    def applied(self) -> Calibration | None:
        """The calibration that it applies, where it has one; None certifies nothing."""
        calibration: Calibration | None = getattr(self, "calibration", None)
        return calibration

    def threshold(self, step: int) -> tuple[float, CertificateState]:
        """Log-threshold at a step and what it rests on; ``-inf`` refuses no token."""
        return (-math.inf, "none") if self.applied is None else self.applied.bound(step)

    def thresholds(self, step: int, branches: tuple[str, ...]) -> tuple[tuple[float, CertificateState], ...]:
        """The thresholds of all masked branches that have their own, or the one that there is."""
        return (self.threshold(step),)

    def views_at(self, logits: Tensor, log_tau: Tensor) -> Views:
        """The views of ``(G, B, V)`` with a threshold for each row, ``(G, 1)``, where the policy reads row by row.

        Their ``log_tau`` and ``state`` are for the caller to fill in.
        """
        raise InvalidInputError(f"The policy {self.title} reads one step at a time.")

    @property
    def form(self) -> Hashable | None:
        """Equal where steps are one function of logits, draws and thresholds; None where they depend on more."""
        return None

    @property
    def label(self) -> str:
        """The method with its parameters, as fingerprints hold it; empty where their other fields say it all."""
        return ""

    def fingerprint(self, model: LanguageModel, detector: str) -> Fingerprint:
        """All that a threshold depends on besides the calibration contexts, on a model with a detector version."""
        sentinel = resolve_sentinel(model.tokenizer, self.mask.sentinel)
        return Fingerprint(
            model=model.name,
            revision=model.revision,
            weights=model.weights_digest,
            tokenizer=model.tokenizer_digest,
            dtype=model.dtype_name,
            chat_template=model.chat_template_digest,
            lam=float(self.fusion_weight or 0.0),
            temperature=float(self.temperature),
            top_p=float(self.top_p),
            top_k=int(self.top_k),
            mask_mode=self.mask.label,
            sentinel="" if sentinel is None else sentinel.text,
            detector=detector,
            estimator=self.applied.estimator if self.applied else "none",
            source=self.applied.source if self.applied else "none",
            method=self.label,
            rendering=model.rendering_label,
            thinking=model.thinking,
            **model.prompting.frame.identity,
        )

    def required(self, used: Fingerprint) -> Fingerprint:
        """What a calibration's fingerprint must be to serve this policy, whose own is ``used``."""
        return used if self.applied is None or self.certified_in == "both" else factual_only(self.applied, used)

    def claim(self, used: Fingerprint) -> Certificate:
        """What may be claimed where the policy's fingerprint is ``used``."""
        if (applied := self.applied) is None:
            return Certificate.uncertified(self.unclaimed or f"{self.title} gives no certificate")
        return compared_certificate(applied.fingerprint, self.required(used), self.accept_mismatch, applied.silence)

    def certificate(self, model: LanguageModel, detector: str) -> Certificate:
        """What may be claimed on this model with this detector version; see :meth:`claim`."""
        return self.claim(self.fingerprint(model, detector))

    # What can be read again of its steps without the model.

    @property
    def fusion_weight(self) -> float | None:
        """The lambda with which it fuses its branches; None if it draws from something else."""
        return None

    def reads(self, branches: tuple[str, ...]) -> bool:
        """Whether it reads the logits of branches of these names."""
        return branches in ((FACTUAL,), (FACTUAL, MASKED))

    def changed(self, lam: float | None, alpha: float | None, calibration: Calibration | None) -> Self:
        """This policy at another fusion weight, risk level or calibration; None keeps its own."""
        if lam is None and alpha is None and calibration is None:
            return self
        raise InvalidInputError(
            f"The policy {self.title} has neither a lambda nor a calibration; read the steps with a COFT policy "
            "instead."
        )
