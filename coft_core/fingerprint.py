"""Policy fingerprints: what must be equal for a calibration to say anything about an audit.

Digests inside them are whole; earlier versions stored shortened ones, which agree with the whole ones.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from coft_core.errors import CalibrationFormatError, CalibrationMismatch
from coft_core.types import OWN, CertifiedIn

WHOLE = 64
"""Hexadecimal digits of a whole SHA-256."""

_DIGEST = re.compile(rf"(?<![0-9A-Za-z])[0-9a-f]{{12,{WHOLE}}}(?![0-9A-Za-z])")
"""A digest: earlier versions stored its first 12 or 16 digits."""

SINGLE_BRANCH = "single branch"
"""Method in the fingerprint of a calibration whose values are log-probabilities of the factual reading."""

_PROMPTS = ("system", "prefill", "turns")
"""Fields in which the prompts of a calibration may differ, which then holds for any of them."""

_MAY_LACK = frozenset(("method", "rendering", "thinking", *_PROMPTS))
"""Fields that are not written where they are empty, so that older fingerprints keep their digest."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Everything that a threshold depends on, besides the calibration contexts themselves.

    Attributes:
        weights: Digest of the weights; ``tokenizer`` and ``chat_template`` are digests too.
        mask_mode: ``"hard"``, or ``"soft: <hint>"``.
        sentinel: The sentinel's name; empty where the vocabulary has none.
        detector: Span detector's version: lexicons, pipeline, families that are only suggested, and user list.
        source: Where the calibration contexts come from.
        method: The decoding method with its own parameters; empty for COFT and vanilla decoding.
        rendering: What the chat template makes of a fixed text, with the moment where it prints the date (see
            :func:`coft_core.text.rendering.rendering_label`); empty without a template and in older fingerprints.
        thinking: ``"on"`` or ``"off"`` where the model is asked to think or not to.
        system: Digest of the system prompt; :data:`coft_core.types.OWN` where prompts differ.
        prefill: What the answer begins with; the same word where prompts differ.
        turns: ``"several"`` where prompts have earlier turns; the same word where they differ.
    """

    model: str
    revision: str
    weights: str
    tokenizer: str
    dtype: str
    chat_template: str
    lam: float
    temperature: float
    top_p: float
    top_k: int
    mask_mode: str
    sentinel: str
    detector: str
    estimator: str
    source: str
    method: str = ""
    rendering: str = ""
    thinking: str = ""
    system: str = ""
    prefill: str = ""
    turns: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON form, 64 hexadecimal digits."""
        canonical = json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def differences(self, other: Fingerprint) -> tuple[tuple[str, str, str], ...]:
        """Fields in which ``other`` differs, as (field, own value, other's value); shortened digests agree."""
        unrecorded = {"rendering"} if self._fits(other) else set()
        unrecorded |= {name for name in _PROMPTS if getattr(self, name) == OWN}
        names = (f.name for f in fields(self) if f.name not in unrecorded)
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in names)
        return tuple(
            (name, str(calibrated), str(used)) for name, calibrated, used in pairs if not _agree(calibrated, used)
        )

    def _fits(self, other: Fingerprint) -> bool:
        """Whether one of both did not record its rendering, and the template alone decides it, which is a field too."""
        renderings = {self.rendering, other.rendering}
        # A label that depends on the moment says so behind its digest.
        return "" in renderings and not any(" " in label for label in renderings)

    def require_equal(self, other: Fingerprint) -> None:
        """Raise :class:`CalibrationMismatch` naming the fields that differ, if any does."""
        if differences := self.differences(other):
            raise CalibrationMismatch(differences)

    def to_dict(self) -> dict[str, str | float | int]:
        """Plain dictionary in field order; what may be empty and is, is left out."""
        return {name: value for name, value in asdict(self).items() if value != "" or name not in _MAY_LACK}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fingerprint:
        """Rebuild from :meth:`to_dict`."""
        names = {f.name for f in fields(cls)}
        if missing := sorted(names - _MAY_LACK - data.keys()):
            raise CalibrationFormatError(f"The fingerprint lacks the field {missing[0]!r}.")
        if unknown := sorted(data.keys() - names):
            raise CalibrationFormatError(f"The fingerprint has the unknown field {unknown[0]!r}.")
        return cls(**data)


def _agree(calibrated: str | float, used: str | float) -> bool:
    return (
        same_digests(calibrated, used) if isinstance(calibrated, str) and isinstance(used, str) else calibrated == used
    )


def certified_in(fingerprint: Fingerprint) -> CertifiedIn:
    """The readings that a calibration's values are of."""
    return "factual" if fingerprint.method == SINGLE_BRANCH else "both"


def same_digests(first: str, second: str) -> bool:
    """Whether two texts are equal once a shortened digest counts as the whole one that begins with it."""
    if first == second:
        return True
    if _DIGEST.split(first) != _DIGEST.split(second):
        return False
    pairs = zip(_DIGEST.findall(first), _DIGEST.findall(second), strict=True)
    return all(a == b or _shortens(a, b) or _shortens(b, a) for a, b in pairs)


def shortest_digest(text: str) -> int | None:
    """Digits of the shortest digest in a text; None if it holds none."""
    return min(map(len, _DIGEST.findall(text)), default=None)


def _shortens(short: str, whole: str) -> bool:
    return len(whole) == WHOLE and len(short) < WHOLE and whole.startswith(short)
