"""The server's log: for people, or one JSON object a line, which holds no text that anybody typed."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import Literal

Form = Literal["text", "json"]
REQUESTS = "coft.requests"
FIELDS = "fields"
"""Attribute of a record with what it says in fields."""


class JsonLines(logging.Formatter):
    """A record as a JSON object.

    Messages and errors of libraries may quote what was typed, so that of an error only its kind and the lines of code
    it came through are written; the program's own messages are constant sentences, whose arguments are left out.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record in one line."""
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.msg if isinstance(record.msg, str) and _is_own(record.name) else "",
        }
        told |= getattr(record, FIELDS, {})
        if record.exc_info and record.exc_info[1] is not None:
            told |= fault(record.exc_info[1])
        return json.dumps(told)


def _is_own(name: str) -> bool:
    return name.partition(".")[0] in ("app", "coft", "coft_core", "db")


def fault(error: BaseException) -> dict[str, object]:
    """What the log says of an error: its kind and the lines of code it came through, without its own words."""
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "error": type(error).__name__,
        "where": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
        **({"cause": type(error.__cause__).__name__} if error.__cause__ is not None else {}),
    }


def log_requests(method: str, path: str, status: int, seconds: float) -> None:
    """Write a line on an answered request: no query, since it names what somebody looks at."""
    told = {"method": method, "path": path, "status": status, "milliseconds": round(1000 * seconds, 1)}
    logging.getLogger(REQUESTS).info("request", extra={FIELDS: told})


def begin_log(form: Form) -> None:
    """Send the whole log to standard error in one form; for the web server, which owns its process."""
    if form == "text":
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # They ask and answer for every request; the program's own line says the same.
    for name in ("uvicorn.access", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
