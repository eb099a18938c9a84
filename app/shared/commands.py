"""What a terminal is offered of the operations: commands with their options, run to the end, and told in words."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from annotated_types import Ge

from app.shared.operations import PROGRESS, TELL, Argument, Operation, Progress, arguments_of, takes, text_of

STOPPED = 130
"""Exit code of a program that was interrupted."""

Opened = Callable[[], AbstractContextManager[Any]]
"""Opens the services."""


class Stopped(Exception):  # noqa: N818 - stopping is no error
    """A command ended before its work did; the text says what is kept."""

    def __init__(self, text: str, code: int = STOPPED) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Choices:
    """Marks an option, in its annotation, whose values are known when the program runs."""

    names: tuple[str, ...]


def commands_of(word: str, operations: Sequence[Operation], opened: Opened) -> Any:
    """The command of this name, with those below it."""
    app = typer.Typer(name=word, add_completion=False)
    for operation in operations:
        first, _, name = operation.command.partition(" ")
        if first == word:
            app.command(name or word, help=operation.told.description)(_callback(operation, opened))
    return typer.main.get_command(app)


def _callback(operation: Operation, opened: Opened) -> Callable[..., Any]:
    """A function with the command's parameters, which gives what is to be done with their values."""

    def read(**given: Any) -> Callable[[], int]:
        asked = partial(_done, operation, opened, given)
        asked.error_code = operation.error_code  # pyrefly: ignore[missing-attribute]
        return asked

    parameters = list(_parameters(operation.call))
    if operation.write is not None:
        parameters.append(_written(operation.write))
    if operation.json is not None and operation.text is not None:
        parameters.append(_parameter(Argument("json", bool, False, True, "print JSON")))
    read.__signature__ = inspect.Signature(parameters)  # pyrefly: ignore[missing-attribute]
    return read


def _parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """Parameters of the command for those of a function; a dataclass stands for its fields."""
    for argument in arguments_of(function):
        if kind := _record(argument):
            yield from (_parameter(field) for field in _fields(kind))
        else:
            yield _parameter(argument)


def _record(argument: Argument) -> Any:
    """The dataclass whose fields stand for an argument; None where it stands for itself."""
    kinds = (argument.annotation, *get_args(argument.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and is_dataclass(kind)), None)


def _fields(record: Any) -> Iterator[Argument]:
    hints = get_type_hints(record, include_extras=True)
    meanings: dict[str, str] = {}
    for base in reversed(record.__mro__):
        meanings |= text_of(base).arguments if is_dataclass(base) else {}
    for field in fields(record):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        default = inspect.Parameter.empty if default is MISSING else default
        said = field.metadata.get("setting")
        meaning = meanings.get(field.name) or (said.help if said else "")
        yield Argument(field.name, hints[field.name], default, True, meaning)


def _parameter(argument: Argument) -> inspect.Parameter:
    """An argument as a parameter of a command: one by name is an option, and others stand in their order."""
    kind = get_args(argument.annotation)[0] if get_origin(argument.annotation) is Annotated else argument.annotation
    if choices := next((mark for mark in get_args(argument.annotation) if isinstance(mark, Choices)), None):
        kind = Literal[choices.names]  # pyrefly: ignore[invalid-literal]
    said = _said(argument)
    if said is None:
        option = f"--{argument.name.replace('_', '-')}"
        said = typer.Option(option) if argument.by_name else typer.Argument()
    said.help = argument.meaning
    said.min = next((mark.ge for mark in get_args(argument.annotation) if isinstance(mark, Ge)), said.min)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(_word(argument), keyword, default=argument.default, annotation=Annotated[kind, said])


def _said(argument: Argument) -> Any:
    """What its annotation says of the option; None where it says nothing."""
    kinds = (typer.models.OptionInfo, typer.models.ArgumentInfo)
    return next((mark for mark in get_args(argument.annotation) if isinstance(mark, kinds)), None)


def _word(argument: Argument) -> str:
    """What a terminal calls it: a session's id is the session."""
    return argument.name if argument.by_name or _said(argument) else argument.name.removesuffix("_id")


def _written(write: Callable[..., Any]) -> inspect.Parameter:
    """The option ``--out``; the name of the function's path says what kind of path it is."""
    path = list(inspect.signature(write).parameters)[-1]
    said = typer.Option("--out", help=text_of(write).description, metavar=path.upper())
    return inspect.Parameter(
        "out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, said]
    )


def _done(operation: Operation, opened: Opened, given: dict[str, Any]) -> int:
    """Do what a command asks for, and print what came of it."""
    out = None if operation.write is None else given.pop("out")
    as_json = given.pop("json", False)
    with opened() as wired:
        arguments = _filled(operation.call, given)
        if takes(operation.call, TELL):
            arguments[TELL] = None if as_json else _told
        with _progress(operation, arguments, quiet=as_json):
            result = operation.call(wired, **arguments)
        if operation.wait is not None:
            result = operation.wait(wired, result, as_json)
        said = "" if out is None or operation.write is None else operation.write(wired, result, out)
    if as_json and operation.json is not None:
        print(json.dumps(operation.json(result), ensure_ascii=False, allow_nan=False, default=str))
    elif operation.text is not None and not isinstance(result, str):
        operation.text(result)
        print(said, end="\n" if said else "")
    elif result is not None:
        print(result)
    return 0 if operation.code is None else operation.code(result)


def _filled(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a function from the values of a command."""
    filled: dict[str, Any] = {}
    for argument in arguments_of(function):
        if kind := _record(argument):
            filled[argument.name] = kind(**{field.name: given[field.name] for field in fields(kind)})
        else:
            filled[argument.name] = given[_word(argument)]
    return filled


def _told(remark: str) -> None:
    print(remark, file=sys.stderr)


@contextmanager
def _progress(operation: Operation, arguments: dict[str, Any], quiet: bool) -> Iterator[None]:
    """Let an operation that tells its progress draw a bar, where there is a terminal to draw it on."""
    if takes(operation.call, PROGRESS):
        with progress_bar(quiet) as moved:
            arguments[PROGRESS] = moved
            yield
    else:
        yield


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress | None]:
    """A bar on standard error; None where nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TaskProgressColumn(), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share, label: bar.update(task, completed=share, description=label)
