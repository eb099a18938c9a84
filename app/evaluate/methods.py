"""Methods and suites by short names, as a command, a request and a page write them.

A method is ``NAME`` or ``NAME:OPTION,OPTION``, with a label of its own as ``LABEL=NAME:OPTION``. An option is a setting
with its value (``lam=0.4``) or a word (``calibrated``). A value with a comma, or with a space at its beginning or end,
is in quotation marks: ``system_prompt="Be brief, and kind."``. Within ``"…"`` a backslash comes before a quotation
mark, before another backslash, and before ``n`` for a new line; within ``'…'`` it is a letter like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from app.evaluate.runs import EvaluationMethod
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.operations import checked
from app.shared.planning import LAYOUTS, families_from_text
from app.shared.policies import FACTORIZED, own_parameters, parameter_values, policy_info
from coft_core.suites.base import Suite
from coft_core.types import FAMILIES

CALIBRATED, UNCERTIFIED, DROPPED = "calibrated", "uncertified", "dropped"
FUSION_ONLY = "fusion only"
"""What tables say of a method that fuses, and certifies nothing for want of a calibration."""

METHOD_SETS: dict[str, tuple[str, ...]] = {
    "table1": ("vanilla", "sdd", "dexperts", "dtcd:calibrated", "coft:calibrated"),
    "baselines": (
        "vanilla", "sdd", "dexperts", "gedi", "safety_template", "detox", "cf_substitution", "dtcd:calibrated",
        "coft:calibrated",
    ),
    "symmetric": ("vanilla", "neutral_rewrite", "contrastive", "iti", "coft:calibrated"),
    "ablations": (
        "vanilla", "coft:calibrated", "coft-no-fusion:calibrated", "coft-no-certification",
        "coft-single-branch:calibrated", "coft-factorized:calibrated",
    ),
    "lambdas": tuple(f"coft:calibrated,lam={lam:g}" for lam in (0, 0.2, 0.4, 0.6, 0.8, 1)),
    "alphas": tuple(f"coft:calibrated,alpha={alpha:g}" for alpha in (0.02, 0.05, 0.1, 0.15, 0.2)),
    "dropped": tuple(f"coft:calibrated,dropped={share:g}" for share in (0, 0.1, 0.2, 0.3, 0.5)),
}  # fmt: skip
"""Methods that are compared with each other: those of the paper's tables and ablations.

Those trained beforehand, ``cda`` and ``adv_lm_head``, are in no set: they need a checkpoint of the model.
"""

SUITE_SETS: dict[str, tuple[str, ...]] = {
    "table1": ("stereoset", "crows_pairs", "bbq", "bold", "utrecht", "compas"),
    "table2": ("gsm8k", "strategyqa", "arc_easy", "piqa", "wikitext", "mauve"),
}
"""The suites of the paper's first two tables; beside them a kind of suite names all of its kind, and ``all`` all."""

ALL = "all"

LABEL_LETTERS = 24
"""Letters of a system prompt that a method's label shows."""

_QUOTED = ('"', "'")
_OPTION = re.compile(
    r"""(?P<name>[^=,]*)
    (?:(?P<equals>=)\s*
        (?:"(?P<escaped>(?:[^"\\]|\\.)*)"\s*(?=,|\Z) | '(?P<literal>[^']*)'\s*(?=,|\Z) | (?P<bare>[^,]*))
    )?""",
    re.DOTALL | re.VERBOSE,
)
"""An option up to the comma behind it."""

_SPECIFICATION = re.compile(r"(?:(?P<label>[^:=]+)=)?(?P<name>[^:=]+?)(?::(?P<options>.*))?", re.DOTALL)


def methods_from(texts: Iterable[str], base: AuditSettings) -> tuple[EvaluationMethod, ...]:
    """Methods from their short names, those of a set in the set's order; one that is named twice is taken once."""
    written = [part for text in texts for part in METHOD_SETS.get(text.strip(), (text,))]
    methods = tuple(dict.fromkeys(method_from(text, base) for text in written))
    labels = [method.label for method in methods]
    if doubled := next((label for label in labels if labels.count(label) > 1), None):
        raise ServiceError(f"Two methods are called “{doubled}”; give one a label of its own, as in mine=coft:lam=0.4.")
    return methods


def method_from(text: str, base: AuditSettings) -> EvaluationMethod:
    """A method from its short name."""
    found = _SPECIFICATION.fullmatch(text.strip())
    if found is None:
        raise ServiceError(
            f"{text!r} is not a method; write NAME or NAME:OPTION,OPTION, such as coft:calibrated,lam=0.4."
        )
    name = found["name"].strip()
    factorized = name == FACTORIZED
    info = policy_info("coft" if factorized else name)
    settings = replace(
        base, policy=info.key, mask_layout="factorized" if factorized else "joint", parameters=(), calibration_id=None,
        group=None,
    )  # fmt: skip
    method = EvaluationMethod("", settings)
    own: dict[str, str] = {}
    named = _options(text, found["options"] or "")
    for option, value in named:
        if option in _OPTIONS:
            method = _put(method, option, value)
        else:
            own[option] = "yes" if value is None else value
    method = _with(method, parameters=parameter_values(info, own) if own else ())
    check_method(method)
    _check_fits(method, {option for option, _ in named})
    label = (found["label"] or "").strip()
    return replace(method, label=label or label_of(method, base))


def _options(text: str, options: str) -> list[tuple[str, str | None]]:
    """Names with their values, None for a word without one."""
    named: list[tuple[str, str | None]] = []
    at = 0
    while at < len(options):
        found = _OPTION.match(options, at)
        assert found is not None  # anything matches as a bare value
        name, at = found["name"].strip(), found.end() + 1
        if found["bare"] is not None and found["bare"][:1] in _QUOTED:
            raise ServiceError(
                f"The value of {name} in {text!r} begins with a quotation mark and does not end with its other one; "
                "add it, or put a backslash before those within."
            )
        if name or found["equals"]:
            named.append((_ALIASES.get(name, name), _value(found)))
    return named


def _value(found: re.Match[str]) -> str | None:
    if found["equals"] is None:
        return None
    if (escaped := found["escaped"]) is not None:
        return re.sub(r"\\(.)", lambda letter: "\n" if letter[1] == "n" else letter[1], escaped, flags=re.DOTALL)
    return str(found["bare"]).strip() if found["literal"] is None else str(found["literal"])


_ALIASES = {"lambda": "lam", "mask_families": "families"}
_SETTINGS: Mapping[str, type] = {
    "lam": float, "alpha": float, "temperature": float, "top_p": float, "top_k": int, "sentinel": str, "mask_mode": str,
    "mask_hint": str, "prompt_format": str, "system_prompt": str, "thinking": str, "prefill": str,
}  # fmt: skip
"""Options that are settings by the same name."""

_WORDS = (CALIBRATED, UNCERTIFIED, "greedy")
_OPTIONS = (*_SETTINGS, *_WORDS, DROPPED, "mask", "families")


def _put(method: EvaluationMethod, option: str, value: str | None) -> EvaluationMethod:
    """The method with one of the options that all methods have."""
    if option in _WORDS:
        if value is not None:
            raise ServiceError(f"The option {option} takes no value; leave “={value}” out.")
        # Only the likeliest token is left to draw from, which is what greedy decoding writes.
        return _with(method, top_k=1) if option == "greedy" else replace(method, calibrated=option == CALIBRATED)
    if value is None:
        raise ServiceError(f"The option {option} needs a value; write {option}=VALUE.")
    if option in _SETTINGS:
        return _with(method, **{option: checked(f"The option {option}", _SETTINGS[option], value)})
    if option == DROPPED:
        return replace(method, dropped=checked(f"The option {option}", float, value))
    if option == "families":
        return _with(method, masked_families=families_from_text(value.replace("+", ",")))
    if value in LAYOUTS:
        return _with(method, mask_layout=value)
    if value not in FAMILIES:
        raise ServiceError(f"There is no mask {value!r}; choose joint, factorized or one of {', '.join(FAMILIES)}.")
    return _with(method, mask_layout="joint", masked_families=(value,))


def _with(method: EvaluationMethod, **changes: Any) -> EvaluationMethod:
    return replace(method, settings=replace(method.settings, **changes))


def check_method(method: EvaluationMethod) -> None:
    """Refuse a method that cannot take part as it is described."""
    info = policy_info(method.settings.policy)
    if method.calibrated and not info.certifies:
        raise ServiceError(f"{info.name} gives no certificate, so it cannot be calibrated; leave “calibrated” out.")
    if method.settings.mask_layout not in info.layouts:
        raise ServiceError(f"{info.name} has one masked reading only; leave the factorized mask out.")
    if not 0 <= method.dropped <= 1:
        raise ServiceError(f"The share of spans left out is {method.dropped:g}; give a number from 0 to 1.")


def _check_fits(method: EvaluationMethod, named: Set[str]) -> None:
    """Refuse options that a method does not have, rather than leave them out."""
    info = policy_info(method.settings.policy)
    if "alpha" in named and not method.calibrated:
        raise ServiceError(f"The level alpha of {info.name} plays no part without thresholds; add “calibrated”.")
    if "lam" in named and not info.fuses:
        raise ServiceError(f"{info.name} has no lambda; leave it out.")


def label_of(method: EvaluationMethod, base: AuditSettings) -> str:
    """A method's name with what is not as usual, in words: ``"COFT, lambda 0.4, fusion only"``."""
    settings, usual = method.settings, AuditSettings()
    info = policy_info(settings.policy)
    parts = [info.name]
    if settings.mask_layout != usual.mask_layout:
        parts.append(f"{settings.mask_layout} mask")
    parts += [f"lambda {settings.lam:g}"] if info.fuses and settings.lam != usual.lam else []
    parts += [f"alpha {settings.alpha:g}"] if method.calibrated and settings.alpha != usual.alpha else []
    parts += [f"{title.lower()} {value}" for title, value, as_usual in own_parameters(settings) if not as_usual]
    parts += [f"{settings.mask_mode} mask"] if settings.mask_mode != usual.mask_mode else []
    parts += [f"masks {', '.join(settings.masked_families)}"] if settings.masked_families is not None else []
    parts += [f"{settings.prompt_format} prompts"] if settings.prompt_format != base.prompt_format else []
    parts += [f"thinking {settings.thinking}"] if settings.thinking != base.thinking else []
    parts += _begun("system prompt", settings.system_prompt) if settings.system_prompt != base.system_prompt else []
    parts += _begun("answer begins", settings.prefill) if settings.prefill != base.prefill else []
    parts += ["greedy"] if settings.top_k == 1 else []
    parts += [f"{method.dropped:.0%} of spans left out"] if method.dropped else []
    parts += [FUSION_ONLY if info.fuses else UNCERTIFIED] if info.certifies and not method.calibrated else []
    return ", ".join(parts)


def _begun(name: str, text: str | None) -> list[str]:
    """The beginning of a text in one line, behind its name."""
    words = " ".join((text or "").split())
    shown = words if len(words) <= LABEL_LETTERS else f"{words[: LABEL_LETTERS - 1].rstrip()}…"
    return [f"{name} “{shown}”"]


def suites_from(texts: Iterable[str], known: Sequence[Suite]) -> tuple[str, ...]:
    """Keys of suites from keys, names of sets and kinds, each taken once, in the order in which they are named."""
    by_name = suite_sets(known) | {suite.key: (suite.key,) for suite in known}
    chosen: list[str] = []
    for name in (part.strip() for text in texts for part in text.split(",")):
        if name and name not in by_name:
            raise ServiceError(f"There is no suite {name!r}; choose among {', '.join(by_name)}.")
        chosen += by_name.get(name, ())
    return tuple(dict.fromkeys(chosen))


def suite_sets(known: Sequence[Suite]) -> dict[str, tuple[str, ...]]:
    """Names that stand for several suites, with the keys of those that are known."""
    keys = tuple(suite.key for suite in known)
    sets = {name: tuple(key for key in wanted if key in keys) for name, wanted in SUITE_SETS.items()}
    kinds = {suite.kind.replace(" ", "_"): suite.kind for suite in known}
    by_kind = {name: tuple(suite.key for suite in known if suite.kind == kind) for name, kind in kinds.items()}
    return {name: found for name, found in (sets | by_kind | {ALL: keys}).items() if found}
