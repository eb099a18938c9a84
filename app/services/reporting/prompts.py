"""The prompts of a calibration in a bundle, with what was asked: enough to calibrate again and compare."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from app.services.calibration.requests import request_from_json, request_to_json
from app.services.errors import CoftError, ServiceError
from app.services.prompts.files import PromptRow, row_from, row_record
from app.services.reporting.canonical import canonical
from app.services.views import CalibrationRequest
from coft_core.masking.user_list import UserList, UserTerm
from db.records import PromptRowRecord, PromptSetRecord

FILE = "calibration_prompts.json"
KIND = "coft-calibration-prompts"
VERSION = 1

_ROWS = TypeAdapter(tuple[PromptRowRecord, ...])
_TERMS = TypeAdapter(tuple[UserTerm, ...])


@dataclass(frozen=True, slots=True)
class CalibrationPrompts:
    """What a calibration was made of.

    Attributes:
        request: What was asked; its word list is the one beside it.
        rows: The prompts.
        user_list: The word list that decided spans; None if there was none.
    """

    request: CalibrationRequest
    rows: tuple[PromptRow, ...]
    user_list: UserList | None = None


def prompts_file(made_of: CalibrationPrompts, stored: PromptSetRecord) -> bytes:
    """The file's content; equal prompts give equal bytes.

    Args:
        made_of: The prompts, and what was asked.
        stored: The prompt set as it was uploaded.
    """
    listed = made_of.user_list
    content = {
        "kind": KIND,
        "version": VERSION,
        "prompt_set": {"name": stored.name, "filename": stored.filename, "sha256": stored.digest},
        "request": request_to_json(made_of.request),
        "user_list": None if listed is None else {"name": listed.name, "terms": [asdict(own) for own in listed.terms]},
        "rows": [asdict(row_record(row)) for row in made_of.rows],
    }
    return (canonical(content, indent=1) + "\n").encode("ascii")


def prompts_from(data: bytes) -> CalibrationPrompts:
    """Read the file.

    Raises:
        ServiceError: It is damaged, or of another version.
    """
    try:
        content = json.loads(data)
        if content["kind"] != KIND or content["version"] != VERSION:
            raise ServiceError(f"{FILE} is of format {content['version']!r}; this program reads format {VERSION}.")
        listed = content["user_list"]
        return CalibrationPrompts(
            request_from_json(content["request"]),
            tuple(row_from(record) for record in _ROWS.validate_python(content["rows"])),
            None if listed is None else UserList(listed["name"], _TERMS.validate_python(listed["terms"])),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError, CoftError) as error:
        raise ServiceError(f"{FILE} cannot be read ({error}); it is damaged, or another file.") from error
