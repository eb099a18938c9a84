"""How spans are masked, as a policy says it and a fingerprint holds it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from coft_core.masking.masker import DEFAULT_HINT, MaskMode
from coft_core.masking.partial import check_families
from coft_core.masking.whitelist import check_whitelist

MaskLayout = Literal["joint", "factorized"]
"""One masked branch for everything, or one for each attribute family."""


@dataclass(frozen=True, slots=True)
class MaskSettings:
    """How spans are masked.

    Attributes:
        mode: ``"hard"``, or ``"soft"`` with a hint.
        hint: Hint of the soft mask.
        sentinel: Sentinel text; None is the model's own.
        families: Attribute families that are masked; None masks all.
        layout: ``"joint"`` or ``"factorized"``.
        whitelist: Terms that are never masked.

    Raises:
        InvalidInputError: A family is unknown.
    """

    mode: MaskMode = "hard"
    hint: str = DEFAULT_HINT
    sentinel: str | None = None
    families: tuple[str, ...] | None = None
    layout: MaskLayout = "joint"
    whitelist: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Bring families and whitelist into the form in which they are compared."""
        object.__setattr__(self, "families", check_families(self.families))
        object.__setattr__(self, "whitelist", check_whitelist(self.whitelist))

    @property
    def label(self) -> str:
        """``"hard"`` or ``"soft: <hint>"``, then whatever is not the default: layout, families, kept terms."""
        hint = json.dumps(self.hint, ensure_ascii=False) if ";" in self.hint else self.hint
        parts = ["hard" if self.mode == "hard" else f"soft: {hint}"]
        if self.layout != "joint":
            parts.append(self.layout)
        if self.families is not None:
            parts.append(f"only {' '.join(self.families)}")
        if self.whitelist:
            # JSON, so that no term can be taken for two.
            parts.append(f"keeps {json.dumps(self.whitelist, ensure_ascii=False)}")
        return "; ".join(parts)

    def keeping(self, terms: Iterable[str]) -> MaskSettings:
        """These settings with more terms that are never masked."""
        return replace(self, whitelist=(*self.whitelist, *terms))
