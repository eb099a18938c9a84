"""The check of what the model read, without its tokenizer."""

from __future__ import annotations

from app.services.reporting.schema import SessionPart
from app.services.reporting.verify.findings import Findings
from coft_core.errors import CoftError
from coft_core.fingerprint import Fingerprint
from coft_core.masking.placing import LOST
from coft_core.masking.rendering import Rendering, moment_of


def check_rendering(found: Findings, session: SessionPart, fingerprint: Fingerprint, tokens: int) -> None:
    """What the model read is of this prompt, in the format that the fingerprint names."""
    if session.rendering is None:
        return
    place = "What the model read"
    try:
        rendering = Rendering.from_dict(session.rendering)
    except CoftError as error:
        found.expect(False, f"{place}: {error}")
        return
    kept = rendering.kept or {}
    found.same(place, "whether through a chat template", rendering.chat, fingerprint.chat_template != "none")
    dated = moment_of(fingerprint.rendering) is not None
    found.expect(rendering.moment is not None or not dated, f"{place}: the moment of its chat template is missing.")
    if found.expect(session.prompt in kept, f"{place}: it is not said for the session's prompt."):
        found.same(place, "the number of tokens", len(kept[session.prompt][0]), tokens)
    for text, (ids, offsets) in kept.items():
        inside = all((start, end) == LOST or 0 <= start <= end <= len(text) for start, end in offsets)
        found.expect(len(ids) == len(offsets) and inside, f"{place}: the places of its tokens lie outside the text.")
