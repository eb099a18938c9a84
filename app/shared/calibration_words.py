"""What the settings rail says of the chosen calibration: how it fits, what it certifies, what is known of groups."""

from __future__ import annotations

from collections.abc import Sequence

from app.shared.audits import FAMILY_NAMES, CalibrationSummary, CalibrationView, SettingsFit
from app.shared.format import count, listed, percentage, plural
from app.shared.policies import info_of, policy_name
from coft_core.conformal.groups import GroupSummary
from coft_core.conformal.informative import WHY_WEAK
from coft_core.conformal.sequence import UNKNOWN_ENDS, ChainLengths
from coft_core.types import OWN

DRIFT_STATES = {
    "fresh": "Still fits your prompts",
    "watch": "Recent audits begin to differ",
    "recalibrate": "Recent audits differ: calibrate again",
    "unknown": "Too few audits to tell whether it still fits",
}
"""What drift has come to, in words; the mark before them has another shape for each."""

NAMES = {
    "model": "model",
    "revision": "revision of the model",
    "weights": "weights of the model",
    "tokenizer": "tokenizer",
    "dtype": "number type",
    "chat_template": "chat template",
    "rendering": "day that the chat template prints:",
    "prompt_format": "prompt format",
    "chat_date": "day that the chat template prints",
    "thinking": "thinking",
    "system": "system prompt",
    "prefill": "what the answer begins with:",
    "turns": "earlier turns:",
    "lam": "lambda",
    "temperature": "temperature",
    "top_p": "top-p",
    "top_k": "top-k",
    "mask_layout": "mask:",
    "mask_mode": "kind of mask",
    "families": "families of the policy",
    "whitelist": "never masked",
    "sentinel": "sentinel",
    "detector": "detector",
    "masked_families": "masked families",
    "user_list": "word list",
}
READINGS = {"both": "both readings", "factual": "only the factual reading", "nothing": "no reading"}
LAYOUTS = {"joint": "all families together", "factorized": "one for each family"}
NO_CALIBRATION = "None: audit without certificate"
ALL_GROUPS = ("All groups together", "")


def lengths_sentence(lengths: ChainLengths) -> str:
    """The law of lengths that a threshold for whole chains rests on."""
    if not lengths.known:
        return UNKNOWN_ENDS
    parts = [f"{lengths.reached} reach the horizon"]
    if lengths.ended:
        parts.append(f"{lengths.ended} end by themselves before it")
    if lengths.cut:
        parts.append(
            f"{lengths.cut} are cut short before it and {'count as missed' if lengths.ended else 'are left out'}"
        )
    said = f"Of its texts, {listed(parts)}"
    if not lengths.reached + lengths.ended:
        return f"{said}."
    from_on = f"{lengths.shortest} to " if lengths.longest > lengths.shortest else ""
    return f"{said}; those used count {from_on}{plural(lengths.longest, 'step')} (median {lengths.median:g})."


def calibration_choices(
    calibrations: Sequence[CalibrationSummary],
    layout: str | None = None,
    model: str | None = None,
    policy: str | None = None,
) -> list[tuple[str, int]]:
    """Calibrations for a menu, those that fit the settings first; what does not fit is named. 0 stands for none."""
    readings = None if policy is None else info_of(policy).certified_in
    reasons = [(item, _misfit(item, layout, model, readings)) for item in calibrations]
    fitting = [(item.name, item.id) for item, why in reasons if not why]
    others = [(f"{item.name} ({why})", item.id) for item, why in reasons if why]
    return [*fitting, *others, (NO_CALIBRATION, 0)]


def calibration_status(view: CalibrationView | str | None, policy: str = "coft") -> tuple[str, str, list[str]]:
    """State, badge text and further lines of the calibration that the settings name."""
    info = info_of(policy)
    if not info.certifies:
        return ("uninformative", f"uncertified: {info.name}", ["This method certifies nothing."])
    if view is None:
        return ("uninformative", "uncertified: no calibration", ["Tokens are shown without a certificate."])
    if isinstance(view, str):
        return ("uninformative", "not usable for this group", [view])
    first = view.bins[0] if view.bins else None
    lines = [coverage_line(view.summary)] if view.group is None else [f"thresholds only of the group “{view.group}”"]
    if view.families:
        names = ", ".join(FAMILY_NAMES.get(part.family, part.family) for part in view.families)
        lines.append(f"own thresholds for {names}")
    if first is None or not view.usable:
        if first is not None and first.silence and first.tau > 0:
            why = f"{first.silence}: {WHY_WEAK}"
            return ("uninformative", f"too weak to say anything, {_contexts(view)}", [why, *lines])
        needed = f", {count(first.needed)} needed" if first else ""
        return ("uninformative", f"too weak to say anything, {_contexts(view)}{needed}", lines)
    if len(view.usable) < len(view.bins):
        lines.append(f"{len(view.usable)} of {plural(len(view.bins), 'range')} of steps usable")
    return ("calibrated", f"calibrated, {_contexts(view)}", lines)


def misfit_lines(fit: SettingsFit) -> list[str]:
    """What differs between a calibration and the settings, and what must be said with its thresholds."""
    for name, calibrated, used in fit.differences:
        if name == "policy":
            return [f"{policy_name(used)} certifies nothing, so this calibration is not used."]
        if name == "certified_in":
            return [
                f"Made for tokens that are certified in {READINGS.get(calibrated, calibrated)}; this method certifies "
                f"in {READINGS.get(used, used)}, so the calibration belongs to another policy, and Run will ask."
            ]
    differs = [difference_text(*item) for item in fit.differences]
    if not differs:
        return list(fit.notes)
    return [
        f"Made with other settings, so it belongs to another policy, and Run will ask: {'; '.join(differs)}.",
        *fit.notes,
    ]


def difference_text(name: str, calibrated: str, used: str) -> str:
    """One setting that differs, in words."""
    if name == "masked_families":
        return f"{NAMES[name]} {_families_text(calibrated, used)}"
    if name == "mask_layout":
        calibrated, used = LAYOUTS.get(calibrated, calibrated), LAYOUTS.get(used, used)
    if name == "chat_template" and "none" in (calibrated, used):
        return f"{_prompted(calibrated)} there, {_prompted(used)} here"
    if name == "rendering":
        days = [label.rpartition(" as of ")[2] if " as of " in label else "" for label in (calibrated, used)]
        if not all(days):
            return "another rendering of the chat template"
        calibrated, used = days
    if name == "system":
        told = {"": "no system prompt", OWN: "a system prompt of each prompt"}
        return f"{told.get(calibrated, 'a system prompt')} there, {told.get(used, 'another one')} here"
    if name == "thinking":
        calibrated, used = (value or "as the template has it" for value in (calibrated, used))
    if name in ("prefill", "turns"):
        calibrated, used = (value or "none" for value in (calibrated, used))
    if name in ("weights", "tokenizer", "detector", "chat_template"):
        return f"another {NAMES[name]}" if name != "weights" else "other weights of the model"
    if name == "user_list":
        calibrated, used = (value.rpartition("+")[0].removeprefix("list ") or value for value in (calibrated, used))
    return f"{NAMES.get(name, name)} {calibrated} there, {used} here"


def _prompted(template: str) -> str:
    return "plain prompts" if template == "none" else "the model's chat template"


def group_choices(groups: Sequence[GroupSummary]) -> list[tuple[str, str]]:
    """Groups for a menu; those with too few contexts say so."""
    return [ALL_GROUPS, *((_group_name(group), group.name) for group in groups)]


def coverage_line(summary: CalibrationSummary) -> str:
    """Verified coverage with its interval, beside what was asked for."""
    goal = percentage(1 - summary.alpha)
    if summary.coverage is None:
        return f"Not checked on prompts of its own (goal: keep the true word {goal} of the time)"
    interval = (
        f", 95 % interval {_whole(summary.coverage_low)} to {_whole(summary.coverage_high)}"
        if summary.coverage_low is not None and summary.coverage_high is not None
        else ""
    )
    return f"Kept the true word {_whole(summary.coverage)} of the time (goal {goal}{interval})"


def _whole(share: float) -> str:
    return percentage(round(share, 2))


def _contexts(view: CalibrationView) -> str:
    """Contexts that the thresholds rest on; families differ in theirs."""
    if view.families:
        fewest, most = min(part.contexts for part in view.families), max(part.contexts for part in view.families)
        if fewest != most:
            return f"{count(fewest)} to {count(most)} contexts"
        return plural(most, "context")
    contexts = view.bins[0].contexts if view.group is not None and view.bins else view.summary.contexts
    return plural(contexts, "context")


def _misfit(item: CalibrationSummary, layout: str | None, model: str | None, readings: str | None) -> str:
    reasons = []
    if readings not in (None, "nothing", item.certified_in):
        reasons.append(READINGS[item.certified_in])
    if layout is not None and item.mask_layout != layout:
        reasons.append("mask: " + LAYOUTS.get(item.mask_layout, item.mask_layout))
    if model is not None and item.model != model:
        reasons.append(f"model: {item.model}")
    return ", ".join(reasons)


def _families_text(calibrated: str, used: str) -> str:
    """Which families only one side masks; whole lists would hide it."""
    there, here = (value.split() if value != "none" else [] for value in (calibrated, used))
    only_there = [FAMILY_NAMES.get(family, family) for family in there if family not in here]
    only_here = [FAMILY_NAMES.get(family, family) for family in here if family not in there]
    parts = [
        f"{', '.join(names)} only {where}" for names, where in ((only_there, "there"), (only_here, "here")) if names
    ]
    return ", ".join(parts)


def _group_name(group: GroupSummary) -> str:
    if group.certifiable:
        return f"{group.name}, {plural(group.contexts, 'context')}"
    if group.outweighed and group.contexts >= group.needed:
        return f"{group.name}: too few, worth {group.effective:.1f} of {group.effective_needed:g} contexts"
    return f"{group.name}: too few, {count(group.contexts)} of {count(group.needed)} contexts"
