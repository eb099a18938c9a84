"""What the parts of the calibrate page share: how events run, and the prompt set and request that the form makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.services.errors import ServiceError
from app.services.ports import Calibrations
from app.services.views import PROMPT_SET_FIELDS, CalibrationRequest, ParsedPromptSet
from app.ui.presenters_form import applicable, calibration_request, columns_from, given_from

EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 8}
"""What all events of the page have in common: errors and changes of state pass only through the queue."""

LATEST: dict[str, Any] = {**EVENT, "trigger_mode": "always_last"}
"""For what follows the newest of many changes: one that comes while another is at work is done afterwards, not dropped.

Not for events that carry data: the one that waits is given the data of the one before it.
"""

NO_FILE = "No prompt set is chosen: upload one, or take a sample."


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt set, and what is asked of it."""

    prompts: ParsedPromptSet
    request: CalibrationRequest


def asked(calibrations: Calibrations, path: str | None, accept: bool, values: Sequence[object]) -> Asked:
    """Read the prompt set as the form maps its columns, and make the form's request.

    Args:
        calibrations: Reads the files.
        path: The uploaded prompt set.
        accept: Go on with the good rows.
        values: The chosen columns, then the form's controls.

    Raises:
        ServiceError: No prompt set is chosen.
    """
    if path is None:
        raise ServiceError(NO_FILE)
    columns, given = columns_from(values[: len(PROMPT_SET_FIELDS)]), given_from(values[len(PROMPT_SET_FIELDS) :])
    prompts = calibrations.parse(Path(path), Path(path).name, columns)
    other = given["deployment"] if applicable(given)["deployment"] else None
    return Asked(prompts, calibration_request(given, Path(path).stem, accept, prompts_of(calibrations, other)))


def prompts_of(calibrations: Calibrations, path: str | None) -> tuple[str, ...]:
    """The prompts of a file of prompts in use; none without a file."""
    if path is None:
        return ()
    return tuple(example.prompt for _, example in calibrations.parse(Path(path), Path(path).name).rows)
