"""What the audit page says while a chain is written, and how it asks for a run that stops somewhere."""

from __future__ import annotations

from collections.abc import Sequence

from app.services.errors import ServiceError
from app.services.run_until import stop_sentence
from app.services.views import ChainProgress, RunUntil, Step
from app.ui.presenters_session import Message, steps_message


def until_from(given: object) -> RunUntil | None:
    """A condition as the browser sends it; None runs to the end.

    Raises:
        ServiceError: A number is missing.
    """
    if not isinstance(given, dict):
        return None
    kind = given.get("kind")
    try:
        if kind == "steps":
            return RunUntil("steps", steps=int(given["steps"]))
        if kind == "sensitive":
            return RunUntil("sensitive", threshold=float(given["threshold"]))
    except (KeyError, TypeError, ValueError) as error:
        what = "tokens to write" if kind == "steps" else "sensitivity to stop at"
        raise ServiceError(f"The number of {what} is missing; write one beside the choice.") from error
    return RunUntil(kind)  # type: ignore[arg-type]  # the service refuses what it does not know


def frame_message(session_id: int, branch_id: int, steps: Sequence[Step], progress: ChainProgress) -> Message:
    """Steps of one branch that the page may not have yet; a late frame is told apart by its branch."""
    return {**steps_message(steps, progress), "session": session_id, "branch": branch_id}


def end_message(
    session_id: int, branch_id: int, progress: ChainProgress, until: RunUntil | None, last: Step | None, written: int
) -> Message:
    """The end of a run: why it stopped, and how long the chain now is, so that no lost frame goes unnoticed."""
    message: Message = {
        **steps_message((), progress, done=True),
        "session": session_id,
        "branch": branch_id,
        "why": stop_sentence(until, last, written, progress.finished),
    }
    return message if last is None else {**message, "length": last.index + 1}
