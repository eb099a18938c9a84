"""From a reviewer's request to a plan of the core and to what the store keeps of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from app.hosting.model_host import ModelHost, label_of
from app.settings import Settings
from app.shared.audits import AuditSettings, MaskPiece, MaskPreview, StartAudit
from app.shared.decoding import OF_POLICIES, DecodingSettings
from app.shared.errors import ServiceError
from app.shared.policies import FACTORIZED, policy_info
from app.shared.project_cache import ProjectCache
from app.shared.thinking import STORED, marks_json
from app.shared.thresholds import Thresholds, own_notes
from app.shared.wiring import Services
from coft_core.conformal.calibration import Calibration
from coft_core.decode.cost import footprint_of
from coft_core.decode.plan import Plan, plan
from coft_core.errors import CalibrationMismatch, InvalidInputError, SentinelError
from coft_core.fingerprint import same_digests
from coft_core.model.group import BranchGroup
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy
from coft_core.policies.factorized import PREFIX
from coft_core.policies.registry import method
from coft_core.text.detection import BESIDE_NAMED, SpanDetector
from coft_core.text.masking import DEFAULT_HINT, MaskedPrompt, masked_pieces
from coft_core.text.rendering import Rendering, moment_of
from coft_core.text.sentinel import sentinel_sentence
from coft_core.text.thinking import ThinkingMarks
from coft_core.text.turns import Frame
from coft_core.text.user_list import UserList
from coft_core.types import FAMILIES, PROXY_FAMILIES, Certificate, Span
from db.audits import SessionFields
from db.types import JsonObject
from db.user_lists import UserListRecord, UserListsRepository

Asked = TypeVar("Asked", bound=DecodingSettings)


def prompted(model: LanguageModel, settings: DecodingSettings) -> LanguageModel:
    """A model as the settings prompt it: all prompts in their frame, and rendered as of one moment."""
    frame = Frame(settings.system_prompt or "", settings.prefill or "", settings.thinking)
    return model.formatted(settings.prompt_format).dated(settings.chat_date).framed(frame)


def pinned(model: LanguageModel, settings: Asked) -> Asked:
    """The settings with the day that the chat template prints, for work that goes on or is resumed on another day."""
    at = moment_of(prompted(model, settings).rendering_label)
    return settings if at is None else replace(settings, chat_date=at)


def rendering_of(stored: JsonObject | None, model: LanguageModel) -> Rendering:
    """How a stored session's model read its prompt; one of an earlier version (None) is rendered again, as it was."""
    return Rendering(model.chat) if stored is None else Rendering.from_dict(stored)


PROTECTED = tuple(family for family in FAMILIES if family not in PROXY_FAMILIES)
GROUPS = {"all": FAMILIES, "protected": PROTECTED, "none": ()}
"""Words that stand for several families."""


def families_from_text(text: str) -> tuple[str, ...]:
    """Attribute families from their names, separated by commas, with ``all``, ``protected`` and ``none`` as groups."""
    chosen: set[str] = set()
    for name in (part.strip().lower() for part in text.split(",")):
        if name and name not in (*FAMILIES, *GROUPS):
            raise InvalidInputError(
                f"There is no attribute family {name!r}; use some of {', '.join((*GROUPS, *FAMILIES))}."
            )
        chosen.update(GROUPS.get(name, (name,)))
    return tuple(family for family in FAMILIES if family in chosen)


LISTS_KEPT = 8
"""Word lists that are kept read."""


def detector_of(settings: Settings) -> SpanDetector:
    """What finds sensitive spans where nobody says otherwise."""
    pipeline = None if settings.pipeline == "none" else settings.pipeline
    return SpanDetector(pipeline=pipeline, masked_families=families_from_text(settings.mask_families))


class Detectors:
    """Gives each request its detector; lexicons and pipeline are loaded once."""

    def __init__(self, detector: SpanDetector, user_lists: UserListsRepository) -> None:
        self._detector = detector
        self.masked_families = detector.masked_families
        """Families that are masked unless a request says otherwise."""
        self._user_lists = user_lists
        self._read: ProjectCache[int, UserList] = ProjectCache(LISTS_KEPT)
        self._lock = Lock()

    @classmethod
    def wired(cls, services: Services) -> Detectors:
        """The settings' detector, and the stored word lists."""
        return cls(detector_of(services.settings), services[UserListsRepository])

    @property
    def default(self) -> SpanDetector:
        """What finds spans where nobody chooses."""
        return self._detector

    def choose(self, choices: DecodingSettings) -> SpanDetector:
        """The detector of a request."""
        families = choices.masked_families
        user_list = None if choices.user_list_id is None else self._user_list(choices.user_list_id)
        return self._detector.adapted(self.masked_families if families is None else families, user_list)

    def list_name(self, choices: DecodingSettings) -> str:
        """Name of the request's word list; empty if it has none."""
        return "" if choices.user_list_id is None else self._user_lists.get(choices.user_list_id).name

    def list_labelled(self, label: str) -> int | None:
        """The word list that a detector's version names by this label; None if it is not stored."""
        stored = self._user_lists.list()
        return next((item.id for item in stored if same_digests(f"list {item.name!r}+{item.digest}", label)), None)

    def list_is_gone(self, choices: DecodingSettings) -> bool:
        """Whether the request's word list has been deleted."""
        return choices.user_list_id is not None and all(
            item.id != choices.user_list_id for item in self._user_lists.list()
        )

    def _user_list(self, user_list_id: int) -> UserList:
        self._user_lists.get(user_list_id)  # refuses one that was deleted
        with self._lock:
            # A stored list never changes and its id is never given again.
            if user_list_id not in self._read:
                self._read[user_list_id] = stored_list(self._user_lists, user_list_id)
            return self._read[user_list_id]


def stored_list(user_lists: UserListsRepository, user_list_id: int) -> UserList:
    """A stored word list as the detector takes it."""
    return UserList(user_lists.get(user_list_id).name, tuple(user_lists.terms(user_list_id)))


def named_list(user_lists: UserListsRepository, name: str) -> UserListRecord:
    """The word list of a name."""
    record = user_lists.find(name.strip())
    if record is None:
        known = ", ".join(f"“{item.name}”" for item in user_lists.list()) or "none yet"
        raise ServiceError(f"There is no word list “{name}”; the lists are: {known}.")
    return record


def preview_of(prepared: Plan, asked: Sequence[Span] = ()) -> MaskPreview:
    """A planned prompt for reading, with what must be said of it."""
    prompt = prepared.prompt
    return MaskPreview(
        tuple(MaskPiece(*piece) for piece in masked_pieces(prompt, prepared.model.tokenizer)),
        len(prompt.factual_ids),
        len(prompt.positions) - len(prompt.repeated),
        (*prepared.warnings, *_kept_by_whitelist(prompt, asked)),
        tuple(branch.name.removeprefix(PREFIX) for branch in prepared.policy.branches(prompt)),
        sentinel_sentence(prompt.sentinel, prompt.sentinel_reason),
    )


def _kept_by_whitelist(prompt: MaskedPrompt, asked: Sequence[Span]) -> tuple[str, ...]:
    kept = {(span.start, span.end) for span in prompt.spans if span.kept}
    words = [prompt.factual_text[s.start : s.end] for s in asked if s.masked and (s.start, s.end) in kept]
    return tuple(
        f"“{word}” is on the whitelist, so it stays visible; take it off the list to mask it."
        for word in dict.fromkeys(words)
    )


LAYOUTS = ("joint", "factorized")
MODES = ("hard", "soft")


def policy_of(settings: AuditSettings, calibration: Calibration | None) -> Policy:
    """The policy of the settings."""
    controls = controls_of(settings) | {"shared_noise": settings.shared_noise}
    if settings.mask_layout not in LAYOUTS:
        raise ServiceError(f"There is no mask layout {settings.mask_layout!r}; choose {' or '.join(LAYOUTS)}.")
    info = policy_info(settings.policy)
    if settings.mask_layout not in info.layouts:
        raise ServiceError(f"{info.name} has one masked reading only; choose the joint mask for it.")
    chosen = method(FACTORIZED if settings.mask_layout == "factorized" else info.key)
    parameters = {"lam": settings.lam} if info.fuses else {}
    thresholds = {"calibration": calibration, "accept_mismatch": settings.proceed_uncertified}
    return chosen.build(dict(settings.parameters), **parameters, **(thresholds if info.certifies else {}), **controls)


def other_layout(settings: AuditSettings, calibration: Calibration) -> Certificate | None:
    """What may be claimed with thresholds of another mask layout: nothing, and only if that was allowed.

    Thresholds of one masked branch say nothing of several, and the other way round, so they cannot even be used
    uncertified. None where the layouts agree.
    """
    calibrated, used = calibration.layout, settings.mask_layout
    if calibrated == used:
        return None
    if not settings.proceed_uncertified:
        raise CalibrationMismatch([("mask_layout", calibrated, used)])
    return Certificate.mismatch(f"mask_layout: calibrated {calibrated}, used {used}, so no threshold is applied")


def controls_of(settings: DecodingSettings) -> dict[str, Any]:
    """What all policies of the settings have in common."""
    if settings.mask_mode not in MODES:
        raise ServiceError(f"There is no mask mode {settings.mask_mode!r}; choose {' or '.join(MODES)}.")
    return {name: getattr(settings, name) for name in OF_POLICIES} | {
        "sentinel": settings.sentinel or None,
        "mask_hint": (settings.mask_hint or "").strip() or DEFAULT_HINT,
    }


def vanilla(settings: AuditSettings) -> AuditSettings:
    """The same settings for the model alone, without fusion, thresholds and factorized masks."""
    return replace(settings, policy="vanilla", calibration_id=None, group=None, mask_layout="joint", parameters=())


class Planner:
    """Turns settings into a policy with its calibration, and a prompt into a plan."""

    def __init__(
        self,
        thresholds: Thresholds,
        detectors: Detectors,
        host: ModelHost,
        full_logits_kb: int = 0,
        marks: Sequence[ThinkingMarks] = (),
    ) -> None:
        """Wire it; up to ``full_logits_kb`` (0: none) a step's logits are kept."""
        self._thresholds = thresholds
        self._detectors = detectors
        self._host = host
        self._full_bytes = full_logits_kb * 1024
        self._marks = tuple(marks)

    def preview(
        self, model: LanguageModel, prompt: str, spans: tuple[Span, ...], settings: AuditSettings
    ) -> MaskPreview:
        """The prompt as the masked branches read it, with its warnings."""
        # What is masked depends neither on the calibration nor on the policy, so that nothing amiss with them, and no
        # further model that is yet to be loaded, may hide the preview.
        masks = replace(without_calibration(settings), policy="coft", parameters=())
        try:
            prepared = self.plan(model, prompt, spans, masks)
        except SentinelError:
            if settings.sentinel:
                raise
            # The vocabulary has none, which is said of the unmasked prompt; a policy that masks refuses to start.
            prepared = self.plan(model, prompt, spans, replace(masks, policy="vanilla", mask_layout="joint"))
        return preview_of(prepared, spans)

    def plan(
        self,
        model: LanguageModel,
        prompt: str,
        spans: tuple[Span, ...] | None,
        settings: AuditSettings,
        rendering: Rendering | None = None,
    ) -> Plan:
        """Mask a prompt and check that it can be decoded with these settings.

        Some policies have a model rewrite the prompt for that, in a turn of its own: the caller holds none.
        """
        model = prompted(model, settings) if rendering is None else model.rendered_as(rendering)
        calibration = self._thresholds.of(settings) if policy_info(settings.policy).certifies else None
        refused = None if calibration is None else other_layout(settings, calibration)
        policy = policy_of(settings, None if refused else calibration)
        further = self._host.further(policy, model)
        make = partial(
            plan,
            model,
            prompt,
            policy,
            spans,
            seed=settings.seed,
            greedy=settings.greedy,
            max_new_tokens=settings.max_new_tokens,
            detector=self._detectors.choose(settings),
            # Only COFT's steps can be read again at another lambda or threshold.
            keep_logits=self._full_bytes > 0 and policy_info(settings.policy).fuses,
            full_bytes=self._full_bytes,
            models=further,
            scorers=self._host.scorers(policy, model),
        )
        size = policy.writing_size(model, further, prompt)
        prepared = self._host.memory.run(size, make) if size else make()
        # Refuses a prompt that fills the context before a session of it is stored.
        BranchGroup(prepared.all_models, prepared.policy.branches(prepared.prompt)).close()
        return prepared if refused is None else replace(prepared, certificate=refused)

    def session_fields(self, request: StartAudit, prepared: Plan) -> SessionFields:
        """What the store keeps of a new session, enough to reopen it without its model."""
        settings, model = request.settings, prepared.model
        info = policy_info(settings.policy)
        certified = info.certifies and settings.calibration_id is not None
        calibration = self._thresholds.summary(settings.calibration_id) if certified else None
        detector = self._detectors.choose(settings)
        fingerprint = prepared.policy.fingerprint(model, detector.version)
        thresholds = self._thresholds.of(settings) if certified else None
        marks = marks_json(model, prepared.prompt, self._marks)
        return SessionFields(
            name=request.name or _name_of(request.prompt),
            prompt=prepared.prompt.factual_text,
            model=model.name,
            model_revision=model.revision,
            policy=settings.policy,
            policy_settings={
                "settings": asdict(replace(settings, masked_families=detector.masked_families)),
                "user_list": self._detectors.list_name(settings),
                "preview": asdict(preview_of(prepared, request.spans or ())),
                "model_label": label_of(model),
                "vocabulary": model.vocabulary_size,
                **({} if marks is None else {STORED: marks}),
            },
            lam=settings.lam if info.fuses else None,
            alpha=settings.alpha if certified else None,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            greedy=settings.greedy,
            seed=settings.seed,
            max_new_tokens=settings.max_new_tokens,
            fingerprint=dict(fingerprint.to_dict()),
            fingerprint_digest=fingerprint.digest,
            certificate=prepared.certificate.text,
            calibration_id=settings.calibration_id if certified else None,
            calibration_label=calibration.name if calibration else "",
            batch=request.batch,
            footprint=asdict(footprint_of(prepared)),
            rendering=model.prompting.to_dict(),
            warnings=prepared.warnings + (() if thresholds is None else own_notes(thresholds)),
        )


def without_calibration(settings: AuditSettings) -> AuditSettings:
    """The same settings without thresholds, for what depends on masks alone."""
    return replace(settings, calibration_id=None, group=None)


def _name_of(prompt: str) -> str:
    words = " ".join(prompt.split())
    return words if len(words) <= 60 else f"{words[:57].rstrip()}…"


_DETECTOR = re.compile(
    rf"(?P<found>.*?), (?:suggestions of (?P<suggested>[a-z+]+)(?:{BESIDE_NAMED})?|no suggestions)"
    r"(?:, (?P<listed>list .+\+[0-9a-f]{12,64}))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class DetectorParts:
    """A detector's version: lexicons and pipeline, masked families, and the word list's label, empty if none."""

    found_by: str
    masked_families: tuple[str, ...]
    user_list: str


def detector_parts(version: str) -> DetectorParts | None:
    """Take a detector's version apart; None if it is of another form."""
    match = _DETECTOR.fullmatch(version)
    if match is None:
        return None
    suggested = (match["suggested"] or "").split("+")
    masked = tuple(family for family in FAMILIES if family not in suggested)
    return DetectorParts(match["found"], masked, match["listed"] or "")
