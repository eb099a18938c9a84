"""Checks of what was asked: the masked prompt follows from its spans, and what is said twice agrees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pydantic import TypeAdapter, ValidationError

from app.report.verify.findings import Compared, Comparing, Within, check, same
from app.report.verify.loaded import Loaded
from app.shared.audits import AuditSettings, MaskPiece, MaskPreview, preview_from_json
from app.shared.errors import ServiceError
from app.shared.planning import controls_of, detector_parts, policy_of
from app.shared.policies import certifies, policy_info
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import Fingerprint, same_digests
from coft_core.text.merging import validate_spans
from coft_core.text.placing import LOST
from coft_core.text.rendering import FORMATS, Rendering, moment_of
from coft_core.text.turns import frame_of
from coft_core.types import KNOWN_FAMILIES, Span
from db.audits import SessionRecord

PLACE = "Masked prompt"
_SETTINGS = TypeAdapter(AuditSettings)
_INVISIBLE = "\N{OPEN BOX}"
"""How a sentinel is shown that is white space alone."""


@dataclass(frozen=True, slots=True)
class _Places:
    """What masks say of every character of a prompt."""

    text: str
    masked: tuple[bool, ...]
    hidden: tuple[bool, ...]
    near: tuple[bool, ...]

    def hides(self, start: int, end: int, tokens: int) -> bool:
        """Whether so many masked tokens can stand for these characters."""
        if start == end:
            # A token of white space alone; the preview shows the white space itself.
            return start > 0 and self.text[start - 1].isspace() and self.masked[start - 1]
        gap = self.text[start:end]
        # Fewer tokens than words: the vocabulary has tokens of several words, so that a mask can reach beyond its own.
        reaches = tokens < len(gap.split())
        fits = any(self.masked[start:end]) and (reaches or all(self.near[start:end]))
        return fits and tokens <= len(gap.encode("utf-8", "surrogatepass")) + 1

    def shows(self, start: int, piece: str) -> bool:
        """Whether the prompt reads so from a character on, with nothing that had to be masked."""
        return self.text.startswith(piece, start) and not any(self.hidden[start : start + len(piece)])


@check("Masked prompt")
def check_preview(loaded: Loaded) -> Comparing:
    """The masked prompt is the prompt with its masked spans replaced, and with nothing else changed."""
    session = loaded.report.session
    try:
        preview = preview_from_json(session.policy_settings["preview"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ServiceError(f"The masked prompt of the session is damaged ({error}).") from error
    masked = sum(piece.masked for piece in preview.pieces)
    yield same(PLACE, "the number of masked tokens", preview.masked_count, masked)
    yield same(PLACE, "the number of masked tokens", preview.masked_count, Within(high=preview.token_count))
    # A method that reads no masked prompt needs no token to show one with.
    unmasked = not preview.masked_count and not session.fingerprint.get("sentinel")
    plain = unmasked and "".join(piece.text for piece in preview.pieces) == session.prompt
    yield (
        plain or _follows(_places(session.prompt, session.spans), preview.pieces),
        "The masked prompt does not follow from the prompt and its spans: it shows other words, leaves a masked span "
        "visible, or masks what no span marks.",
    )
    yield from _check_fillers(loaded, preview)
    return f"{preview.token_count} tokens, {preview.masked_count} masked"


def _places(text: str, spans: Sequence[Span]) -> _Places:
    masked, kept = [False] * len(text), [False] * len(text)
    for span in spans:
        # A suggestion is shown and never masked.
        marks = kept if span.kept else None if span.suggested else masked
        if marks is not None:
            for place in range(max(span.start, 0), min(span.end, len(text))):
                marks[place] = True
    near, hidden = list(masked), [hides and not char.isspace() for hides, char in zip(masked, text, strict=True)]
    for start, end in _words(text):
        if any(masked[start:end]):
            near[start:end] = [True] * (end - start)
        if any(kept[start:end]):
            # A token that a kept word shares with a masked one was left visible by earlier versions.
            hidden[start:end] = [False] * (end - start)
    return _Places(text, tuple(masked), tuple(hidden), tuple(near))


def _words(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for blank, run in groupby(text, str.isspace):
        end = start + len(list(run))
        if not blank:
            yield start, end
        start = end


def _follows(places: _Places, pieces: Sequence[MaskPiece]) -> bool:
    """Whether the pieces can be laid over the prompt; all places where the next one may begin are kept in mind."""
    runs = [(masked, list(run)) for masked, run in groupby(pieces, lambda piece: piece.masked)]
    starts, waiting = {0}, 0
    for masked, run in runs:
        if masked:
            waiting = len(run)
            continue
        starts = set(_ends(places, starts, waiting, "".join(piece.text for piece in run)))
        waiting = 0
    whole = len(places.text)
    if waiting:
        return any(places.hides(start, whole, waiting) for start in starts)
    return whole in starts


def _ends(places: _Places, starts: set[int], masked: int, piece: str) -> Iterator[int]:
    """Where a plain piece can end that follows so many masked tokens."""
    for start in starts:
        if not masked:
            if places.shows(start, piece):
                yield start + len(piece)
            continue
        place = places.text.find(piece, start)
        while place >= 0:
            if places.hides(start, place, masked) and places.shows(place, piece):
                yield place + len(piece)
            place = places.text.find(piece, place + 1)


def _check_fillers(loaded: Loaded, preview: MaskPreview) -> Iterator[Compared]:
    """Masked tokens read as the sentinel, or as the hint's first words and then the sentinel."""
    sentinel = str(loaded.report.session.fingerprint.get("sentinel", ""))
    shown = {sentinel.strip()} if sentinel.strip() else {"", _INVISIBLE}
    controls = controls_of(loaded.settings)
    hint = "".join(controls["mask_hint"].split()) if controls["mask_mode"] == "soft" else ""
    if not hint.isascii():
        # Its tokens may be parts of characters, which have no text of their own.
        return
    for masked, run in groupby(preview.pieces, lambda piece: piece.masked):
        words = "".join(piece.text for piece in run if piece.text not in shown) if masked else ""
        fits = _of_hint("".join(words.split()), hint)
        yield same(PLACE, "what stands for masked tokens", words, words if fits else sentinel)


def _of_hint(words: str, hint: str) -> bool:
    """Whether words are beginnings of the hint, one after another."""
    reached = {0}
    for place in range(len(words)):
        if place in reached:
            ends = range(place + 1, min(place + len(hint), len(words)) + 1)
            reached |= {end for end in ends if hint.startswith(words[place:end])}
    return len(words) in reached


def _check_rendering(session: SessionRecord, fingerprint: Fingerprint, tokens: int) -> Iterator[Compared]:
    """What the model read is of this prompt, in the format that the fingerprint names."""
    if session.rendering is None:
        return
    place = "What the model read"
    rendering = Rendering.from_dict(session.rendering)
    kept = rendering.kept or {}
    frame = frame_of(session.prompt, rendering.frame.thinking)
    yield same(place, "its frame", rendering.frame, frame)
    for name, value in frame.identity.items():
        yield same(place, name, getattr(fingerprint, name), value)
    yield same(place, "its thinking", fingerprint.thinking or frame.thinking, frame.thinking)
    yield same(place, "whether through a chat template", rendering.chat, fingerprint.chat_template != "none")
    dated = moment_of(fingerprint.rendering) is not None
    yield rendering.moment is not None or not dated, f"{place}: the moment of its chat template is missing."
    counted = len(kept[session.prompt][0]) if session.prompt in kept else None
    yield same(place, "the number of tokens of the session's prompt", counted, tokens)
    for text, (ids, offsets) in kept.items():
        inside = all((start, end) == LOST or 0 <= start <= end <= len(text) for start, end in offsets)
        yield len(ids) == len(offsets) and inside, f"{place}: the places of its tokens lie outside the text."


@check("Prompt, spans and settings")
def check_settings(loaded: Loaded) -> Comparing:
    """Spans lie in the prompt, settings are of their types, and they agree with session and fingerprint."""
    session = loaded.report.session
    for span in session.spans:
        inside = 0 <= span.start < span.end <= len(session.prompt)
        yield inside, f"The span {span.start} to {span.end} ({span.category}) lies outside the prompt."
    try:
        validate_spans(session.prompt, session.spans)
    except InvalidInputError as error:
        yield False, str(error)
    yield from _check_types(loaded)
    fingerprint = Fingerprint.from_dict(session.fingerprint)
    pairs = list(_pairs(loaded, fingerprint))
    yield from _check_rendering(session, fingerprint, int(session.policy_settings["preview"]["token_count"]))
    for name, value in session.fingerprint.items():
        wanted = float if name in ("lam", "temperature", "top_p") else int if name == "top_k" else str
        fits = type(value) is wanted or (wanted is float and type(value) is int)
        yield same("Fingerprint", f"the type of {name}", wanted if fits else type(value), wanted)
    digest = session.fingerprint_digest
    alike = same_digests(digest, fingerprint.digest)
    yield same("Fingerprint", "its digest", digest, digest if alike else fingerprint.digest)
    for name, stated, other in pairs:
        yield same("Settings", name, stated, other)
    earlier = all(name != "method with its parameters" for name, _, _ in pairs)
    told = f"; {session.policy} had another rule then, which only the program of that time can apply" if earlier else ""
    return f"{len(session.spans)} spans, {len(pairs)} settings{told}"


def _check_types(loaded: Loaded) -> Iterator[Compared]:
    """What the schema leaves open: settings are kept as the program had them, and labels as text."""
    session = loaded.report.session
    try:
        _SETTINGS.validate_json(json.dumps(session.policy_settings["settings"]), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        yield False, f"Settings: {place} is of another type than it can be ({first['msg']})."
    chosen = loaded.settings.prompt_format
    yield chosen in FORMATS, f"Settings: there is no prompt format {chosen!r}."
    yield same("Session", "its status", session.status, "open")
    for place, _, step in loaded.own_steps():
        named = {part.family for part in step.families}
        named |= {family for row in step.candidates for family in row.refused_by}
        yield same(place, "the families that there are not", named - set(KNOWN_FAMILIES), set())


def _pairs(loaded: Loaded, fingerprint: Fingerprint) -> Iterator[tuple[str, object, object]]:
    """Everything that the report says in two places."""
    session, settings = loaded.report.session, loaded.settings
    policy = policy_of(settings, None)
    info = policy_info(settings.policy)
    certified = certifies(settings) and settings.calibration_id is not None
    yield "model", session.model, fingerprint.model
    yield "model_revision", session.model_revision, fingerprint.revision
    for name in ("temperature", "top_p", "top_k"):
        yield name, getattr(session, name), getattr(fingerprint, name)
        yield f"setting {name}", getattr(settings, name), getattr(fingerprint, name)
    yield "lam", session.lam, fingerprint.lam if info.fuses else None
    yield "setting lam", settings.lam if info.fuses else 0.0, fingerprint.lam
    for name in ("policy", "seed", "greedy", "max_new_tokens"):
        yield name, getattr(session, name), getattr(settings, name)
    yield "alpha", session.alpha, settings.alpha if certified else None
    yield "whether a calibration is named", bool(session.calibration_label), certified
    if session.calibration_id is not None:
        yield "calibration_id", session.calibration_id, settings.calibration_id
    # An audit that was made before the method's rule was changed: this program cannot apply that rule any more.
    if not (policy.rule and fingerprint.method.startswith(f"{policy.name} ")):
        yield "method with its parameters", policy.label, fingerprint.method
    yield "masks", policy.mask.label, fingerprint.mask_mode
    if settings.prompt_format != "auto":
        yield "prompt format", settings.prompt_format == "chat", fingerprint.chat_template != "none"
    if loaded.mismatched:
        yield "whether going on uncertified was allowed", settings.proceed_uncertified, True
    if settings.sentinel:
        yield "sentinel", settings.sentinel, fingerprint.sentinel
    yield from _of_the_detector(loaded, fingerprint)
    for index, computed in enumerate(session.policy_settings.get("computed", ())):
        yield f"number type of computation {index + 1}", computed["dtype"], fingerprint.dtype


def _of_the_detector(loaded: Loaded, fingerprint: Fingerprint) -> Iterator[tuple[str, object, object]]:
    parts = detector_parts(fingerprint.detector)
    if parts is None:
        return
    chosen = loaded.settings.masked_families
    if chosen is not None:
        yield "masked families", sorted(chosen), sorted(parts.masked_families)
    named = str(loaded.report.session.policy_settings.get("user_list", ""))
    yield "the word list", parts.user_list.rpartition("+")[0], f"list {named!r}" if named else ""
    yield "whether there is a word list", loaded.settings.user_list_id is not None, bool(named)
