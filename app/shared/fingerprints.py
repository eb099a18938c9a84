"""What a fingerprint says of masking and detection, taken apart again into what a reviewer can set."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import cast

from coft_core.errors import InvalidInputError
from coft_core.text.detection import BESIDE_NAMED
from coft_core.text.masking import DEFAULT_HINT, MaskLayout, MaskMode, MaskSettings
from coft_core.types import FAMILIES

_DETECTOR = re.compile(
    rf"(?P<found>.*?), (?:suggestions of (?P<suggested>[a-z+]+)(?:{BESIDE_NAMED})?|no suggestions)"
    r"(?:, (?P<listed>list .+\+[0-9a-f]{12,64}))?",
    re.DOTALL,
)
_SOFT = "soft: "


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
