"""What the parts of the calibrate page share: the prompt set and the request that the form makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.services.calibration.service import CalibrationService
from app.services.errors import ServiceError
from app.services.views import PROMPT_SET_FIELDS, CalibrationRequest, ParsedPromptSet
from app.ui.presenters_form import applicable, calibration_request, columns_from, given_from

NO_FILE = "No prompt set is chosen: upload one, or take a sample."


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt set, and what is asked of it."""

    prompts: ParsedPromptSet
    request: CalibrationRequest


def asked(calibrations: CalibrationService, path: str | None, accept: bool, values: Sequence[object]) -> Asked:
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


def prompts_of(calibrations: CalibrationService, path: str | None) -> tuple[str, ...]:
    """The prompts of a file of prompts in use; none without a file."""
    if path is None:
        return ()
    return tuple(example.prompt for _, example in calibrations.parse(Path(path), Path(path).name).rows)
