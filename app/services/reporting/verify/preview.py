"""The check of the masked prompt: it must follow from the prompt, the spans and the sentinel, without a tokenizer.

A preview is the prompt with one piece for each masked token. Which characters a token has only the tokenizer knows, but
a masked token overlaps a masked span, so that the preview can be laid over the prompt: plain pieces must be its very
characters in order, all that lies between them must belong to masked spans or to the words that these stand in, and no
character of a masked span may stay visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from app.services.mapping import preview_from_json
from app.services.policy_choice import controls_of
from app.services.reporting.schema import SpanPart
from app.services.reporting.verify.findings import Findings, failed
from app.services.reporting.verify.loaded import Loaded
from app.services.views import MaskPiece, MaskPreview
from app.services.views.verification import Check

NAME = "Masked prompt"
_INVISIBLE = "\N{OPEN BOX}"
"""How a sentinel is shown that is white space alone."""


@dataclass(frozen=True, slots=True)
class _Places:
    """What masks say of every character of a prompt.

    Attributes:
        text: The prompt.
        masked: Whether a masked span covers it.
        hidden: Whether it may not stay visible.
        near: Whether it stands in a masked span, or in the same word as one.
    """

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


def check_preview(loaded: Loaded) -> Check:
    """The masked prompt is the prompt with its masked spans replaced, and with nothing else changed."""
    session = loaded.report.session
    found = Findings(NAME)
    try:
        preview = preview_from_json(session.policy_settings["preview"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return failed(NAME, f"The masked prompt of the session is damaged ({error}).")
    found.same(NAME, "the number of masked tokens", preview.masked_count, sum(p.masked for p in preview.pieces))
    found.expect(preview.masked_count <= preview.token_count, "Masked prompt: more tokens are masked than it has.")
    fits = not preview.masked_count and _masks_nothing(loaded)
    fits = fits and "".join(piece.text for piece in preview.pieces) == session.prompt
    found.expect(
        fits or _follows(_places(session.prompt, session.spans), preview.pieces),
        "The masked prompt does not follow from the prompt and its spans: it shows other words, leaves a masked span "
        "visible, or masks what no span marks.",
    )
    _check_fillers(found, loaded, preview)
    return found.check(f"{preview.token_count} tokens, {preview.masked_count} masked")


def _masks_nothing(loaded: Loaded) -> bool:
    """Whether the method reads no masked prompt and the model has no token to show one with."""
    return not loaded.report.session.fingerprint.get("sentinel")


def _places(text: str, spans: Sequence[SpanPart]) -> _Places:
    masked, kept = [False] * len(text), [False] * len(text)
    for span in spans:
        # A suggestion is shown and never masked.
        marks = kept if span.kept else None if span.suggested else masked
        if marks is not None:
            for place in range(max(span.start, 0), min(span.end, len(text))):
                marks[place] = True
    near, hidden = list(masked), [own and not char.isspace() for own, char in zip(masked, text, strict=True)]
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


def _check_fillers(found: Findings, loaded: Loaded, preview: MaskPreview) -> None:
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
        found.expect(
            _of_hint("".join(words.split()), hint),
            f"Masked prompt: {words!r} stands for masked tokens, and the sentinel is {sentinel!r}.",
        )


def _of_hint(words: str, hint: str) -> bool:
    """Whether words are beginnings of the hint, one after another."""
    reached = {0}
    for place in range(len(words)):
        if place in reached:
            ends = range(place + 1, min(place + len(hint), len(words)) + 1)
            reached |= {end for end in ends if hint.startswith(words[place:end])}
    return len(words) in reached
