"""How prompts are put before a model: through its chat template at one moment, or plainly; and what came of it.

A chat template may print the date, or draw something at random. What a model once read is therefore kept with an
audit, and given again instead of being rendered again.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any, Literal, Self

from jinja2 import Environment, TemplateError, meta

from coft_core.errors import InvalidInputError
from coft_core.text.turns import ASSISTANT, BETWEEN_TURNS, USER, Frame, Thinking, Turn, said_turns

PromptFormat = Literal["auto", "chat", "plain"]
FORMATS: tuple[PromptFormat, ...] = ("auto", "chat", "plain")
"""The template where the tokenizer has one; the template; the text alone."""

PROBE = "Who wrote this letter?"
"""The fixed text whose rendering is part of the fingerprint."""

AS_OF = " as of "
"""Between a rendering's digest and the moment at which a template that prints the date gives it."""

CHANGES = "changes with each rendering"
NO_CALIBRATION = (
    "This model's chat template renders the same text in another way each time, so no calibration can hold for it; "
    "use the plain prompt format."
)

_PRINTS_TIME = "strftime_now"
_DIRECTIVES = (*"aAbBcdDeFGHIjmMpSTuUVwWxXyYZz", *(f"-{name}" for name in "dmHIMSjye"))
# Named arguments reach a template as plain values only, so the moment is handed over as a table of what each directive
# prints, and a macro takes the place of the function. The plus sign keeps a line break that begins the template.
_AT_MOMENT = (
    "{%- macro strftime_now(format) -%}{%- set own = namespace(text=format.replace('%%', '\0')) -%}"
    "{%- for name, value in rendered_at.items() -%}{%- set own.text = own.text.replace(name, value) -%}{%- endfor -%}"
    "{{- own.text.replace('\0', '%') -}}{%- endmacro +%}"
)

Tokens = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
"""Token ids of a text as the model reads it, and their character ranges in the text."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """How texts are rendered, and those that were."""

    chat: bool = False
    moment: datetime | None = None
    kept: dict[str, Tokens] | None = None
    as_it_stands: bool = False
    frame: Frame = field(default_factory=Frame)

    @classmethod
    def of(cls, chat: bool | Rendering) -> Rendering:
        """A rendering, or the one with or without a template at the present moment that keeps nothing."""
        return chat if isinstance(chat, Rendering) else cls(chat, datetime.now())

    def keeping(self) -> Rendering:
        """The same rendering, which keeps what it renders from now on apart from this one."""
        return replace(self, kept=dict(self.kept or {}))

    def tokens(self, text: str, tokenize: Callable[[str], Tokens]) -> Tokens:
        """Ids and offsets of a text: those that are kept, or those that are made, which are kept then."""
        if self.kept is None:
            return tokenize(text)
        if text not in self.kept:
            self.kept[text] = tokenize(text)
        return self.kept[text]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, the texts in the order in which they were rendered."""
        texts = [
            {"text": text, "ids": list(ids), "offsets": [list(pair) for pair in offsets]}
            for text, (ids, offsets) in (self.kept or {}).items()
        ]
        at = self.moment.isoformat() if self.chat and self.moment is not None else None
        told: dict[str, Any] = {"chat": self.chat, "at": at, "texts": texts}
        if self.as_it_stands:
            told["as_it_stands"] = True
        if frame := self.frame.to_dict():
            told["frame"] = frame
        return told

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild from :meth:`to_dict`."""
        try:
            kept = {
                str(item["text"]): (
                    tuple(int(token) for token in item["ids"]),
                    tuple((int(start), int(end)) for start, end in item["offsets"]),
                )
                for item in data["texts"]
            }
            at = data["at"]
            moment = None if at is None else datetime.fromisoformat(at)
            frame = Frame.from_dict(data.get("frame", {}))
            return cls(bool(data["chat"]), moment, kept, bool(data.get("as_it_stands", False)), frame)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(f"What the model read cannot be understood ({error}); it is damaged.") from error


def parse_moment(text: str | None) -> datetime | None:
    """The local time of ``"2026-11-21"`` or ``"2026-11-21T09:30"``; None and an empty text stand for the present."""
    if text is None or not text.strip():
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidInputError(
            f"The chat template's date is {text.strip()!r}; give a day such as 2026-11-21, or leave it empty for today."
        ) from error
    return moment.replace(tzinfo=None)


SWITCHES = ("enable_thinking", "thinking")
"""Names under which chat templates ask whether the model is to think, likeliest first."""


RENDERERS = frozenset(
    (*Environment().globals, "messages", "add_generation_prompt", "tools", "documents", "strftime_now",
     "raise_exception", "rendered_at")
)  # fmt: skip
"""What whoever renders a template gives it; beside these it is given the tokenizer's special tokens (``bos_token``)."""


@cache
def template_settings(source: str) -> frozenset[str]:
    """The names that a chat template asks for besides the conversation: what those who use it may tell it."""
    try:
        asked = meta.find_undeclared_variables(Environment(extensions=["jinja2.ext.loopcontrols"]).parse(source))
    except TemplateError:
        # Templates with the library's own tags are not parsed here; what they ask stands in them all the same.
        asked = {name for name in SWITCHES if re.search(rf"\b{name}\b", source)}
    return frozenset(name for name in asked - RENDERERS if not name.endswith("_token"))


@cache
def thinking_switch(source: str) -> str:
    """The name under which a chat template asks whether the model is to think; empty where it does not ask."""
    asked = template_settings(source)
    return next((name for name in SWITCHES if name in asked), "")


def render(
    tokenizer: Any,
    content: str | Sequence[Turn],
    moment: datetime | None = None,
    thinking: Thinking = "auto",
    told: Mapping[str, Any] | None = None,
) -> str:
    """A text as the user's message in the tokenizer's chat template, as of a local time; None takes the present.

    What the template is told besides is not checked.
    """
    turns = (Turn(USER, content),) if isinstance(content, str) else content
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    goes_on = turns[-1].role == ASSISTANT
    source = tokenizer.get_chat_template()
    fields = dict(told or {})
    if thinking != "auto" and (switch := thinking_switch(source)):
        fields[switch] = thinking == "on"
    if _PRINTS_TIME in source:
        moment = moment or datetime.now()
        table = {f"%{name}": moment.strftime(f"%{name}") for name in _DIRECTIVES}
        fields |= {"chat_template": _AT_MOMENT + source, "rendered_at": {**table, "%f": f"{moment.microsecond:06d}"}}
    try:
        return str(
            tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=not goes_on, continue_final_message=goes_on, **fields
            )
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"This model's chat template cannot be rendered ({error}); use the plain prompt format."
        ) from error


def rendering_label(tokenizer: Any, moment: datetime | None = None) -> str:
    """What the chat template makes of the probe text, as fingerprints hold it.

    A template that prints the date gives another label on another day; the label then names the coarsest moment (a
    year's or month's first day, a day, a minute, ...) at which the rendering is the same, so that it can be had again.
    """
    moment = moment or datetime.now()
    text = render(tokenizer, PROBE, moment)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if text != render(tokenizer, PROBE, moment):
        return f"{digest} {CHANGES}"
    coarser = _coarser(moment) if _PRINTS_TIME in tokenizer.get_chat_template() else []
    if not coarser or all(render(tokenizer, PROBE, other) == text for other in _OTHERS):
        return digest
    return f"{digest}{AS_OF}{next(at for at in coarser if render(tokenizer, PROBE, parse_moment(at)) == text)}"


def moment_of(label: str) -> str | None:
    """The moment that a rendering's label names; None for a rendering that does not depend on it."""
    _, dated, at = label.partition(AS_OF)
    return at if dated else None


_OTHERS = (datetime(1999, 1, 3, 4, 5, 6, 7), datetime(2087, 12, 30, 22, 58, 57, 123456))
"""Two moments that share no part of any date or time."""


def is_steady(label: str) -> bool:
    """Whether a rendering's label is of a template that gives one text for one message at one moment."""
    return not label.endswith(CHANGES)


def rendering_note(label: str) -> str:
    """One sentence on a template that depends on more than the text, from its rendering's label; empty for others."""
    if at := moment_of(label):
        return (
            f"The model's chat template prints the date; it is rendered as of {at}, whenever this audit is read again."
        )
    if not is_steady(label):
        return (
            "The model's chat template renders the same text in another way each time; this audit keeps what the model "
            "read, and a new audit of the same text reads something else."
        )
    return ""


def require_steady(label: str) -> None:
    """Refuse to calibrate under a template that renders one text in several ways."""
    if not is_steady(label):
        raise InvalidInputError(NO_CALIBRATION)


def _coarser(moment: datetime) -> list[str]:
    """Names of moments that agree with this one in more and more parts; the last is this one."""
    day = moment.date()
    days = [start.isoformat() for start in (day.replace(month=1, day=1), day.replace(day=1), day)]
    return days + [moment.isoformat(timespec=spec) for spec in ("hours", "minutes", "seconds", "microseconds")]


MARK = "\uf8f0"
"""One character, which no template can cut, to find the messages in one rendering."""

_REWRITES = (
    "This model's chat template does more with the message than print it as typed, so sensitive spans cannot be placed "
    "in all that the model reads; use the plain prompt format."
)
_REWRITES_TURNS = (
    "This model's chat template does more with the turns than print them as typed, in their order (templates leave the "
    "thinking of earlier answers out, for example), so sensitive spans cannot be placed in all that the model reads; "
    "give earlier answers without their thinking, or use the plain prompt format."
)


@dataclass(frozen=True, slots=True)
class Copy:
    """One place of the templated text at which a template prints the reviewer's text, or a turn of it."""

    start: int
    end: int
    shift: int = 0

    def meets(self, start: int, end: int) -> bool:
        """Whether a range of the templated text has a character of this copy."""
        return start < self.end and self.start < end


def read_text(tokenizer: Any, text: str, rendering: Rendering) -> tuple[str, tuple[Copy, ...]]:
    """What a model reads of a text under a rendering, and all places at which it holds the reviewer's text."""
    if rendering.as_it_stands:
        return text, (Copy(0, len(text)),)
    turns = said_turns(text)
    if rendering.chat:
        thinking = rendering.frame.thinking
        return apply_chat_template(tokenizer, turns or (Turn(USER, text),), rendering.moment, thinking)
    return _paragraphs(turns) if turns else (text, (Copy(0, len(text)),))


def apply_chat_template(
    tokenizer: Any, turns: Sequence[Turn], moment: datetime | None = None, thinking: Thinking = "auto"
) -> tuple[str, tuple[Copy, ...]]:
    """Put turns into the tokenizer's chat template, as of a moment; None takes the present."""
    moment = moment or datetime.now()
    probes = [replace(turn, content=f"\u2042coft{number}\u2042") for number, turn in enumerate(turns)]
    templated, probe = (render(tokenizer, said, moment, thinking) for said in (turns, probes))
    copies = _copies(templated, probe, turns, probes)
    if not copies and probe != render(tokenizer, probes, moment, thinking):
        templated, copies = _marked(tokenizer, turns, moment, thinking)
    if not copies:
        raise InvalidInputError(_REWRITES if len(turns) == 1 else _REWRITES_TURNS)
    return templated, copies


def _paragraphs(turns: Sequence[Turn]) -> tuple[str, tuple[Copy, ...]]:
    ends = list(itertools.accumulate(len(turn.content) + len(BETWEEN_TURNS) for turn in turns))
    places = [end - len(BETWEEN_TURNS) for end in ends]
    copies = tuple(Copy(end - len(turn.content), end, turn.start) for turn, end in zip(turns, places, strict=True))
    return BETWEEN_TURNS.join(turn.content for turn in turns), copies


def _copies(templated: str, probe: str, turns: Sequence[Turn], probes: Sequence[Turn]) -> tuple[Copy, ...]:
    """The places of turns where others would stand; none if their template differs in more than that."""
    pieces = re.split(f"({'|'.join(re.escape(turn.content) for turn in probes)})", probe)
    printed = [int(piece[5:-1]) for piece in pieces[1::2]]
    if set(printed) != set(range(len(turns))):
        return ()
    pattern = re.escape(pieces[0]) + "".join(
        f"({_forms(turns[number].content)}){re.escape(piece)}"
        for number, piece in zip(printed, pieces[2::2], strict=True)
    )
    match = re.fullmatch(pattern, templated, re.DOTALL)
    return tuple(
        _copy(turns[number], templated, start, end)
        for number, (start, end) in zip(printed, match.regs[1:] if match else (), strict=False)
    )


def _forms(text: str) -> str:
    return "|".join(map(re.escape, dict.fromkeys((text, text.rstrip(), text.lstrip(), text.strip()))))


def _copy(turn: Turn, templated: str, start: int, end: int) -> Copy:
    text = turn.content
    kept = templated[start:end] in (text, text.rstrip())
    return Copy(start, end, turn.start + (0 if kept else len(text) - len(text.lstrip())))


def _marked(
    tokenizer: Any, turns: Sequence[Turn], moment: datetime, thinking: Thinking
) -> tuple[str, tuple[Copy, ...]]:
    """The templated text and its copies by a template that renders each time in another way: one rendering, marked."""
    cores = [turn.content.strip() for turn in turns]
    leads = [len(turn.content) - len(turn.content.lstrip()) for turn in turns]
    marked = [
        replace(turn, content=turn.content.replace(core, f"{MARK}{core}{MARK}", 1))
        for turn, core in zip(turns, cores, strict=True)
    ]
    parts = render(tokenizer, marked, moment, thinking).split(MARK)
    printed = parts[1::2]
    alike = set(printed) == {cores[0]} if len(turns) == 1 else printed == cores
    if len(parts) < 3 or len(parts) % 2 == 0 or not alike:
        return "", ()
    ends = list(itertools.accumulate(map(len, parts)))[1::2]
    places = [number % len(turns) for number in range(len(ends))]
    return "".join(parts), tuple(
        Copy(end - len(cores[place]), end, turns[place].start + leads[place])
        for place, end in zip(places, ends, strict=True)
    )
