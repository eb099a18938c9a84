"""How an audit's settings and a calibration agree, and the settings that a calibration was made with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

from app.hosting.model_host import ModelHost
from app.shared.audits import AuditSettings, SettingsFit
from app.shared.decoding import SAMPLED
from app.shared.errors import ServiceError
from app.shared.planning import Detectors, detector_parts, policy_of, prompted
from app.shared.policies import fitted, policy_info
from app.shared.thresholds import Thresholds, own_notes, readings_of
from coft_core.conformal.calibration import Calibration
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint, same_digests
from coft_core.text.masking import DEFAULT_HINT, MaskLayout, MaskMode, MaskSettings
from coft_core.text.rendering import moment_of
from coft_core.text.sentinel import resolve_sentinel
from coft_core.text.turns import Thinking

Difference = tuple[str, str, str]

_OF_THE_MODEL = ("model", "revision", "weights", "tokenizer", "dtype", "chat_template", "rendering", "thinking")
"""Fields of a fingerprint that the model alone decides."""


class Fitting:
    """Compares settings with calibrations without loading a model; a model that is loaded anyway is compared too."""

    def __init__(self, thresholds: Thresholds, detectors: Detectors, host: ModelHost) -> None:
        self._thresholds = thresholds
        self._detectors = detectors
        self._host = host

    def fit(self, settings: AuditSettings) -> SettingsFit:
        """How the settings and the calibration that they name agree."""
        whole = self._thresholds.of(replace(settings, group=None))
        if whole is None:
            return SettingsFit()
        info, readings = policy_info(settings.policy), readings_of(whole)
        if info.certified_in != readings:
            kind = "certified_in" if info.certifies else "policy"
            deployed, used = (readings, info.certified_in) if info.certifies else ("coft", settings.policy)
            return SettingsFit(((kind, deployed, used),), adoptable=True)
        differences = tuple(self._differences(settings, whole))
        left = tuple(self._differences(self.adopt(settings), whole)) if differences else ()
        return SettingsFit(differences, own_notes(self._of_group(settings, whole)), len(left) < len(differences))

    def _of_group(self, settings: AuditSettings, whole: Calibration) -> Calibration:
        try:
            return self._thresholds.of(settings) or whole
        except InvalidInputError:
            # An unknown or too small group is refused where its thresholds are asked for.
            return whole

    def adopt(self, settings: AuditSettings) -> AuditSettings:
        """The settings with everything that the calibration they name was made with.

        What no setting can bring back, such as other weights or a word list that is gone, stays a difference.
        """
        if settings.calibration_id is None:
            raise ServiceError("No calibration is chosen; choose one, then its settings can be used.")
        stored = self._thresholds.stored(settings.calibration_id)
        fingerprint = stored.fingerprint
        adopted = replace(
            fitted(settings, _adopting(settings.policy, readings_of(stored), fingerprint.lam)),
            calibration_id=settings.calibration_id,
            group=settings.group,
            alpha=stored.alpha,
            **{name: getattr(fingerprint, name) for name in SAMPLED},
            proceed_uncertified=False,
            prompt_format=self._prompt_format(settings, fingerprint),
            chat_date=moment_of(fingerprint.rendering),
            thinking=cast(Thinking, fingerprint.thinking or settings.thinking),
        )
        if readings_of(stored) == "factual":
            return adopted
        usual = self._own_sentinel(settings.model)
        adopted = replace(
            adopted,
            lam=fingerprint.lam,
            sentinel=None if usual == fingerprint.sentinel else fingerprint.sentinel or None,
        )
        return self._with_detector(_with_mask(adopted, fingerprint.mask_mode), fingerprint.detector)

    def _differences(self, settings: AuditSettings, calibration: Calibration) -> Iterator[Difference]:
        policy, calibrated = policy_of(settings, None), calibration.fingerprint
        # Thresholds of the factual reading alone depend neither on lambda nor on any mask.
        masks_count = readings_of(calibration) == "both"
        lam = {"lam": getattr(policy, "lam", calibrated.lam)} if masks_count else {}
        used = lam | {name: getattr(policy.sampling, name) for name in SAMPLED}
        yield from self._of_the_model(settings, calibrated)
        yield from _unequal((name, getattr(calibrated, name), value) for name, value in used.items())
        if not masks_count:
            return
        yield from _mask_differences(calibrated.mask_mode, policy.mask)
        sentinel = policy.mask.sentinel or self._own_sentinel(settings.model)
        if sentinel is not None:
            yield from _unequal([("sentinel", calibrated.sentinel, sentinel)])
        yield from _detector_differences(calibrated.detector, self._detectors.choose(settings).version)

    def _of_the_model(self, settings: AuditSettings, calibrated: Fingerprint) -> Iterator[Difference]:
        model = self._host.loaded(settings.model)
        if model is None:
            yield from _unequal([("model", calibrated.model, settings.model)])
            return
        # Any policy's fingerprint names the model alike. A sentinel that is being typed may be no token yet.
        plain = replace(settings, policy="coft", parameters=(), sentinel=None)
        used = policy_of(plain, None).fingerprint(prompted(model, settings), "")
        different = {
            name: (deployed, other) for name, deployed, other in calibrated.differences(used) if name in _OF_THE_MODEL
        }
        if "chat_template" in different:
            different.pop("rendering", None)
        # Another model has other weights and another tokenizer, of course; its name says it all.
        shown = ["model"] if "model" in different else list(different)
        yield from ((name, *different[name]) for name in shown)

    def _prompt_format(self, settings: AuditSettings, calibrated: Fingerprint) -> str:
        """The prompt format of a calibration; the settings' own where it comes to the same, as far as that is known."""
        model, chat = self._host.loaded(settings.model), calibrated.chat_template != "none"
        prompt_format = settings.prompt_format
        used = (model is not None and model.chat) if prompt_format == "auto" else prompt_format == "chat"
        return (
            prompt_format
            if used == chat or (prompt_format == "auto" and model is None)
            else "chat"
            if chat
            else "plain"
        )

    def _own_sentinel(self, name: str) -> str | None:
        """The name that a fingerprint holds where none is asked for; None while the model is not loaded."""
        model = self._host.loaded(name)
        if model is None:
            return None
        sentinel = resolve_sentinel(model.tokenizer)
        return "" if sentinel is None else sentinel.text

    def _with_detector(self, settings: AuditSettings, version: str) -> AuditSettings:
        parts = detector_parts(version)
        if parts is None:
            return settings
        listed = self._detectors.list_labelled(parts.user_list)
        return replace(settings, masked_families=parts.masked_families, user_list_id=listed)


def _adopting(policy: str, readings: str, lam: float) -> str:
    """The policy that a calibration is used with: the chosen one if it can be, else the one it was made for."""
    info = policy_info(policy)
    if info.certified_in == readings and (info.fuses or readings == "factual" or lam == 0):
        return policy
    return "coft-single-branch" if readings == "factual" else "coft"


def _with_mask(settings: AuditSettings, label: str) -> AuditSettings:
    mask = mask_settings(label)
    if mask is None:
        return settings
    return replace(
        settings,
        mask_layout=mask.layout,
        mask_mode=mask.mode,
        mask_hint=None if mask.hint == DEFAULT_HINT else mask.hint,
        whitelist=mask.whitelist,
        group=None if mask.layout == "factorized" else settings.group,
    )


def _mask_differences(label: str, used: MaskSettings) -> Iterator[Difference]:
    calibrated = mask_settings(label)
    if calibrated is None:
        yield from _unequal([("mask_mode", label, used.label)])
        return
    sides = [(mask.layout, _mode(mask), _listed(mask.families), _listed(mask.whitelist)) for mask in (calibrated, used)]
    yield from _unequal(zip(("mask_layout", "mask_mode", "families", "whitelist"), *sides, strict=True))


def _detector_differences(calibrated: str, used: str) -> Iterator[Difference]:
    first, second = detector_parts(calibrated), detector_parts(used)
    if first is None or second is None:
        yield from _unequal([("detector", calibrated, used)])
        return
    sides = [
        (parts.found_by, " ".join(parts.masked_families) or "none", parts.user_list or "none")
        for parts in (first, second)
    ]
    yield from _unequal(zip(("detector", "masked_families", "user_list"), *sides, strict=True))


def _unequal(items: Iterable[tuple[str, object, object]]) -> Iterator[Difference]:
    for name, calibrated, used in items:
        if calibrated != used and not same_digests(str(calibrated), str(used)):
            yield (name, str(calibrated), str(used))


def _mode(mask: MaskSettings) -> str:
    return "hard" if mask.mode == "hard" else f"soft: {mask.hint}"


def _listed(terms: tuple[str, ...] | None) -> str:
    return "all" if terms is None else ", ".join(terms) or "none"


_SOFT = "soft: "


def mask_settings(label: str) -> MaskSettings | None:
    """The mask settings whose label this is; None if there are none."""
    for mode, hint, rest in _modes(label):
        try:
            settings = _with_rest(mode, hint, rest)
        except (InvalidInputError, ValueError):
            continue
        # A hint may look like what follows it; only settings that read back as the very label are right.
        if settings is not None and settings.label == label:
            return settings
    return None


def _modes(label: str) -> list[tuple[str, str, str]]:
    """Possible readings of a label's beginning: mode, hint, and what follows."""
    if not label.startswith(_SOFT):
        return [("hard", DEFAULT_HINT, label.removeprefix("hard"))]
    text = label.removeprefix(_SOFT)
    hint, _, rest = text.partition("; ")
    readings = [("soft", hint, f"; {rest}" if rest else "")]
    if text.startswith('"'):
        try:
            quoted, end = json.JSONDecoder().raw_decode(text)
        except json.JSONDecodeError:
            return readings
        readings.insert(0, ("soft", str(quoted), text[end:]))
    return readings


def _with_rest(mode: str, hint: str, rest: str) -> MaskSettings | None:
    layout, families, whitelist = "joint", None, ()
    if rest.startswith("; factorized"):
        layout, rest = "factorized", rest.removeprefix("; factorized")
    if rest.startswith("; only "):
        named, keeps, kept = rest.removeprefix("; only ").partition("; keeps ")
        families, rest = tuple(named.split()), keeps + kept
    if rest.startswith("; keeps "):
        whitelist, rest = tuple(json.loads(rest.removeprefix("; keeps "))), ""
    if rest:
        return None
    return MaskSettings(cast(MaskMode, mode), hint, None, families, cast(MaskLayout, layout), whitelist)
