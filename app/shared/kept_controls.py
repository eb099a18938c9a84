"""The controls of branches as the store keeps them, and what all of a project's prompts show together."""

from __future__ import annotations

from dataclasses import asdict

from coft_core.controls.result import Controls, Evidence
from db.controls import ControlsRepository, ControlsRow

CONTROLS = ("effect", "effect_p", "controls")
"""Further columns of tables: what marked words move, its p-value over the text, and the number of controls."""


class KeptControls:
    """Keeps the newest controls of each branch."""

    def __init__(self, stored: ControlsRepository) -> None:
        self._stored = stored

    def keep(self, branch_id: int, found: Controls) -> None:
        """Store the controls of a branch in place of earlier ones."""
        self._stored.keep(branch_id, controls_row(found))

    def of_session(self, session_id: int) -> dict[int, Controls]:
        """The controls of a session's branches that have any."""
        return {branch: Controls.from_json(data) for branch, data in self._stored.of_session(session_id).items()}

    @property
    def evidence(self) -> Evidence:
        """What the prompts of this project that were audited one by one say together."""
        return Evidence.of(self._stored.evidence())


def controls_row(found: Controls) -> ControlsRow:
    """Controls as a row of the store."""
    return ControlsRow(found.key, found.evidence, [asdict(own.ranked) for own in found.families], found.to_json())


def control_cells(controls: Controls | None, step: int) -> dict[str, object]:
    """The effect of the marked words at a step beside its controls; only their number, 0, where there are none."""
    family = None if controls is None else controls.strongest(step)
    if controls is None or family is None or not family.deciding:
        return dict(zip(CONTROLS, (None, None, 0), strict=True))
    values = (family.marked.effects[step], controls.p_value(step), len(family.deciding))
    return dict(zip(CONTROLS, values, strict=True))


def step_said(controls: Controls, step: int) -> str:
    """What the controls of a step say, in one sentence; empty where there are none."""
    family = controls.strongest(step)
    if family is None or not family.deciding:
        return ""
    kind = {"neutral": "neutral words", "names": "other names"}[family.fits] if family.neutral else "other words"
    corrected = ", over the whole text" if controls.steps > 1 else ""
    return f"p = {controls.p_value(step):.2g} beside {len(family.deciding)} {kind}{corrected}."
