"""An operation is declared once.

What programs, agents, the terminal and the documentation are offered is made from the declaration: a function whose
first parameter is the services, with typed parameters and a docstring that says what each is for.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from app.shared.errors import ServiceError
from app.shared.needs import ADMIN, Need

R = TypeVar("R")

Json = dict[str, Any]
Tell = Callable[[str], None]
"""Takes remarks on the way; an operation that is given None makes none."""

Progress = Callable[[float, str], None]
"""Takes the share of the work that is done, and what is being done; None where nobody looks."""

SERVICES, TELL, PROGRESS, FOLDER = "wired", "tell", "progress", "folder"
"""Parameters that whoever offers an operation fills in, and no caller; the folder is for files that are answers."""

PARTS = ("Args:", "Attributes:", "Returns:", "Raises:")


@dataclass(frozen=True, slots=True)
class Read:
    """Marks an argument, in its annotation, that is read from a JSON object, or from None where none is given."""

    reader: Callable[[Json | None], Any]


@dataclass(frozen=True, slots=True)
class OnTerminal:
    """Marks an argument with a default, in its annotation, that a command has and programs are not offered."""


@dataclass(frozen=True, slots=True)
class Argument:
    """What an operation is told; one that can only be given by name is an option of a command."""

    name: str
    annotation: Any
    default: Any
    by_name: bool
    meaning: str

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def plain(self) -> Any:
        """Its type as plain JSON: what is read from an object is one."""
        if self._reader is None:
            return self.annotation
        return Json if self.required else Json | None

    @property
    def plain_default(self) -> Any:
        """Its default as plain JSON."""
        return self.default if self.required or self._reader is None else None

    def read(self, value: Any) -> Any:
        """Its value from plain JSON; a sentence that names the argument refuses what it cannot be."""
        given = checked(f"The argument {self.name}", self.plain, value)
        if isinstance(given, Path) and NO_FILE.search(str(given)):
            raise ServiceError(f"The argument {self.name} is no name that a file can have; give a file.")
        if self._reader is None:
            return given
        try:
            return self._reader(given)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            told = " ".join(str(error).split())
            raise ServiceError(f"The argument {self.name} cannot be read ({told}); give what its type says.") from error

    @property
    def _reader(self) -> Callable[[Json | None], Any] | None:
        kind, *extras = get_args(self.annotation) if get_origin(self.annotation) is Annotated else (self.annotation,)
        if marked := next((extra for extra in extras if isinstance(extra, Read)), None):
            return marked.reader
        kinds = [option for option in (kind, *get_args(kind)) if isinstance(option, type) and is_dataclass(option)]
        if not kinds:
            return None
        what = "setting" if self.name == "settings" else f"{self.name} setting"
        return lambda given: self.default if given is None else record(kinds[0], given, what=what)


@dataclass(frozen=True, slots=True)
class Text:
    """A docstring taken apart; its arguments are meanings by name."""

    description: str
    arguments: Mapping[str, str]
    returns: str

    @property
    def summary(self) -> str:
        """Description and result in one text, for a program that shows no more than that."""
        return " ".join(part for part in (self.description, self.returns and f"Returns: {self.returns}") if part)


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that the program does for whoever asks; ``call`` is given the services and the arguments."""

    call: Callable[..., Any]
    # The result as plain JSON; None where it has none.
    json: Callable[[Any], Any] | None = None
    # Whether programs and agents are offered it, under the function's name.
    endpoint: bool = True
    need: Need = ADMIN
    # What a component that holds the answer is called, where files go in or out.
    answer: str = "answer"
    # Calls by programs that run beside each other.
    at_once: int = 4
    # The words that ask for it on a terminal; empty where none do.
    command: str = ""
    # Waits on a terminal for what has only begun, and gives the result in the end; told whether to be quiet.
    wait: Callable[[Any, Any, bool], Any] | None = None
    # Writes the result to the path that ``--out`` names, and says so in a sentence, which may be empty.
    write: Callable[[Any, Any, Path], str] | None = None
    # Prints the result for people; None prints it as it is.
    text: Callable[[Any], None] | None = None
    # With which code a result ends a command, and with which an error does; None is always 0.
    code: Callable[[Any], int] | None = None
    error_code: int = 1

    @property
    def name(self) -> str:
        """Under which programs call it."""
        return self.call.__name__

    @property
    def told(self) -> Text:
        """What its docstring says."""
        return text_of(self.call)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What programs give; a command may have more."""
        return tuple(item for item in arguments_of(self.call) if OnTerminal() not in get_args(item.annotation))

    def checked(self, values: Sequence[Any]) -> dict[str, Any]:
        """Arguments in their order, from plain JSON."""
        return {argument.name: argument.read(value) for argument, value in zip(self.arguments, values, strict=True)}


def operation(**offered: Any) -> Callable[[Callable[..., Any]], Operation]:
    """Declare a function as an operation, offered by the attributes of :class:`Operation` without the first."""
    return lambda call: Operation(call, **offered)


def command(words: str, **offered: Any) -> Callable[[Callable[..., Any]], Operation]:
    """Declare a function as an operation that only a terminal offers; see :func:`operation`."""
    return operation(command=words, endpoint=False, **offered)


def operations_of(module: object) -> tuple[Operation, ...]:
    """The operations that a module declares, in its order."""
    return tuple(value for value in vars(module).values() if isinstance(value, Operation))


@functools.cache
def arguments_of(function: Callable[..., Any]) -> tuple[Argument, ...]:
    """The parameters of a function that its callers fill in; a dataclass has its fields as such."""
    hints, meanings = get_type_hints(function, include_extras=True), text_of(function).arguments
    return tuple(
        Argument(
            parameter.name,
            hints.get(parameter.name, Any),
            parameter.default,
            parameter.kind is inspect.Parameter.KEYWORD_ONLY,
            meanings.get(parameter.name, ""),
        )
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in (SERVICES, TELL, PROGRESS, FOLDER)
    )


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name."""
    return name in inspect.signature(function).parameters


@functools.cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def checked(what: str, annotation: Any, value: Any) -> Any:
    """A value from JSON in the type that it must have; ``what`` begins the sentence that refuses it."""
    if problem := _unusable(value):
        raise ServiceError(f"{what}{problem}.")
    try:
        return _adapter(annotation).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f", {part}" for part in first["loc"])
        reason = first["msg"][:1].lower() + first["msg"][1:]
        raise ServiceError(f"{what}{place} cannot be {first['input']!r:.80}: {reason}.") from error


NO_FILE = re.compile("[\0\ud800-\udfff]")
"""What no file's name may hold: a NUL, and halves of characters."""
WHOLE = 2**63
"""Whole numbers reach to this, and no further: the store keeps 64 bits."""
DEEPEST = 32
"""Lists and objects within each other in one argument."""


def _unusable(value: Any, depth: int = 0) -> str:
    """What no argument may hold, with its place: numbers that nothing here can keep, and depths without end."""
    if isinstance(value, int) and not isinstance(value, bool) and not -WHOLE <= value < WHOLE:
        return " holds a whole number of more than 64 bits; give one between -2^63 and 2^63 - 1"
    if isinstance(value, float) and not math.isfinite(value):
        return f" holds {value}, which is not a number in JSON; give a finite one"
    if depth > DEEPEST:
        return f" holds lists or objects more than {DEEPEST} deep; give fewer"
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    told = ((name, _unusable(part, depth + 1)) for name, part in parts)
    return next((f", {name}{problem}" for name, problem in told if problem), "")


def record(
    kind: type[R], given: Json | None, what: str = "setting", others: tuple[str, ...] = (), **defaults: Any
) -> R:
    """A frozen record from JSON, which names fields; others have their defaults.

    ``what`` calls a field in the sentence that refuses one, and ``others`` are names that are read elsewhere.
    """
    declared = fields(kind)  # pyrefly: ignore[bad-argument-type]
    named = {name: value for name, value in (given or {}).items() if name not in others}
    known = [item.name for item in declared]
    if unknown := sorted(set(named) - set(known)):
        names = ", ".join(dict.fromkeys([*known, *others]))
        raise ServiceError(f"There is no {what} {unknown[0]!r}; the {what}s are {names}.")
    needed = [item.name for item in declared if item.default is MISSING and item.default_factory is MISSING]
    if missing := [name for name in needed if name not in {**defaults, **named}]:
        raise ServiceError(f"The {what} {missing[0]} is required.")
    hints = get_type_hints(kind)
    return kind(
        **{**defaults, **{name: checked(f"The {what} {name}", hints[name], value) for name, value in named.items()}}
    )


def text_of(documented: object) -> Text:
    """The docstring of a function or class, taken apart."""
    parts: dict[str, list[str]] = {"": [], **{name: [] for name in PARTS}}
    part = ""
    for line in (inspect.getdoc(documented) or "").splitlines():
        if line in PARTS:
            part = line
        elif line.strip():
            parts[part].append(line)
    arguments = _arguments(parts["Args:"] or parts["Attributes:"])
    return Text(_joined(parts[""]), arguments, _joined(parts["Returns:"]))


def _arguments(lines: Sequence[str]) -> dict[str, str]:
    """An argument begins where the first one does; deeper lines go on with it."""
    depth = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    meanings: dict[str, str] = {}
    name = ""
    for line in lines:
        if len(line) - len(line.lstrip()) > depth and name:
            meanings[name] += f" {line.strip()}"
        else:
            name, _, meaning = (part.strip() for part in line.partition(":"))
            meanings[name] = meaning
    return meanings


def _joined(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines)
