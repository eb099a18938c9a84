"""The controls of branches as the store keeps them, and what all of a project's prompts show together."""

from __future__ import annotations

from coft_core.controls.result import Controls, Evidence
from db.controls import ControlsRepository, ControlsRow


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
    return ControlsRow(found.key, found.evidence, found.to_json())
