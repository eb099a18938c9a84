"""From a reviewer's request to a plan of the core and to what the store keeps of it."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial

from app.services.calibration.thresholds import Thresholds, own_notes
from app.services.detection import Detectors
from app.services.known_policies import policy_info
from app.services.mapping import preview_to_json
from app.services.mask_previews import branch_names, preview_of
from app.services.model_host import ModelHost, label_of
from app.services.policy_choice import other_layout, policy_of
from app.services.prompting import prompted
from app.services.views import AuditSettings, MaskPreview, Span, StartAudit
from coft_core.decode import Plan, plan
from coft_core.engine.group import BranchGroup
from coft_core.engine.model import LanguageModel
from coft_core.errors import SentinelError
from coft_core.footprint import footprint_of
from coft_core.masking.rendering import Rendering
from coft_core.policies.base import PreparesByWriting
from db.records import BatchPlaceRecord, SessionFields


class Planner:
    """Turns settings into a policy with its calibration, and a prompt into a plan."""

    def __init__(self, thresholds: Thresholds, detectors: Detectors, host: ModelHost, full_logits_kb: int = 0) -> None:
        """Wire the planner.

        Args:
            thresholds: Calibrations as settings name them.
            detectors: Find sensitive spans; a detector's version is part of every fingerprint.
            host: Loads what policies run beside the audited model.
            full_logits_kb: Kilobytes up to which the logits of a step are kept whole; of larger ones the heads are
                kept. 0 keeps none.
        """
        self._thresholds = thresholds
        self._detectors = detectors
        self._host = host
        self._full_bytes = full_logits_kb * 1024

    def preview(
        self, model: LanguageModel, prompt: str, spans: tuple[Span, ...], settings: AuditSettings
    ) -> MaskPreview:
        """The prompt as the masked branches read it, with its warnings."""
        # What is masked depends neither on the calibration nor on the policy, so that nothing amiss with them, and no
        # further model that is yet to be loaded, may hide the preview.
        masks = for_masks(settings)
        try:
            prepared = self.plan(model, prompt, spans, masks)
        except SentinelError:
            if settings.sentinel:
                raise
            # The vocabulary has none, which is said of the unmasked prompt; a policy that masks refuses to start.
            prepared = self.plan(model, prompt, spans, replace(masks, policy="vanilla", mask_layout="joint"))
        return preview_of(prepared, branch_names(prepared), spans)

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

        Args:
            model: The model.
            prompt: The reviewer's text.
            spans: Its sensitive spans; None lets the detector find them.
            settings: The settings.
            rendering: How the model read the prompt before; None renders it as the settings say.

        Raises:
            InvalidInputError: The prompt, a span or a setting cannot be used, or the prompt fills the context.
            ModelLoadError: A further model or a scorer that the policy needs cannot be loaded.
            CalibrationMismatch: The calibration belongs to another policy and going on was not allowed.
            ServiceError: There is no such policy, mask or group.
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
        size = policy.writing_size(model, further, prompt) if isinstance(policy, PreparesByWriting) else 0
        prepared = self._host.memory.run(size, make) if size else make()
        _require_room(prepared)
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
        return SessionFields(
            name=request.name or _name_of(request.prompt),
            prompt=request.prompt,
            model=model.name,
            model_revision=model.revision,
            policy=settings.policy,
            policy_settings={
                "settings": asdict(replace(settings, masked_families=detector.masked_families)),
                "user_list": self._detectors.list_name(settings),
                "preview": preview_to_json(preview_of(prepared, branch_names(prepared), request.spans or ())),
                "model_label": label_of(model),
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
            batch=None if request.batch is None else BatchPlaceRecord(request.batch.batch_id, request.batch.line),
            footprint=asdict(footprint_of(prepared)),
            rendering=model.prompting.to_dict(),
            warnings=prepared.warnings + (() if thresholds is None else own_notes(thresholds)),
        )


def without_calibration(settings: AuditSettings) -> AuditSettings:
    """The same settings without thresholds, for what depends on masks alone."""
    return replace(settings, calibration_id=None, group=None)


def for_masks(settings: AuditSettings) -> AuditSettings:
    """The same settings under COFT without thresholds, which every mask layout has."""
    return replace(without_calibration(settings), policy="coft", parameters=())


def _require_room(prepared: Plan) -> None:
    """Refuse a prompt that fills the context before a session of it is stored."""
    BranchGroup(prepared.all_models, prepared.policy.branches(prepared.prompt)).close()


def _name_of(prompt: str) -> str:
    words = " ".join(prompt.split())
    return words if len(words) <= 60 else f"{words[:57].rstrip()}…"
