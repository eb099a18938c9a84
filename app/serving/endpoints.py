"""What Gradio offers of the operations: endpoints for programs, which are tools for agents too."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_type_hints

import gradio as gr
from gradio.components import Component
from gradio.components.api_component import Api
from gradio.events import api

from app.shared.events import shown_to
from app.shared.operations import FOLDER, Operation, takes

_ANY_OBJECT: dict[str, Any] = {"oneOf": [{"type": "null"}, {"type": "object", "additionalProperties": {}}]}
"""The schema of Gradio's own JSON component is not valid."""


def offer(operations: Iterable[Operation], wired: Any) -> None:
    """Register the operations that programs are offered."""
    parts: dict[str, Component] = {}
    folder = tempfile.TemporaryDirectory(prefix="coft-reports-")
    hidden = gr.Group(visible=False)
    for operation in operations:
        if not operation.endpoint:
            continue
        how: dict[str, Any] = {
            "api_name": operation.name,
            "api_description": operation.told.summary,
            "concurrency_limit": operation.at_once,
        }
        if not _has_files(operation):
            api(callable_of(operation, wired, folder), **how)
            continue
        with hidden:
            inputs = [_component(parts, argument.name, argument.plain) for argument in operation.arguments]
            output = _component(parts, operation.answer, _returned(operation))
            gr.Button().click(callable_of(operation, wired, folder), inputs, output, **how)


def callable_of(
    operation: Operation, wired: Any, folder: tempfile.TemporaryDirectory[str] | None = None
) -> Callable[..., Any]:
    """What Gradio calls: plain JSON in and out, with types and a docstring as it reads them, each part on one line."""

    @shown_to(operation.need)
    def call(*values: Any) -> Any:
        arguments = operation.checked(values)
        if folder is not None and takes(operation.call, FOLDER):
            arguments[FOLDER] = Path(folder.name)
        result = operation.call(wired, **arguments)
        return str(result) if isinstance(result, Path) else (operation.json or _as_it_is)(result)

    told, arguments = operation.told, operation.arguments
    lines = [told.description, "", "Args:", *(f"    {argument.name}: {argument.meaning}" for argument in arguments)]
    call.__doc__ = "\n".join([*lines, "", "Returns:", f"    {told.returns}"])
    call.__name__ = operation.name
    call.__annotations__ = {argument.name: argument.plain for argument in arguments} | {"return": Any}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature(  # pyrefly: ignore[missing-attribute]
        [
            inspect.Parameter(argument.name, kind, default=argument.plain_default, annotation=argument.plain)
            for argument in arguments
        ],
        return_annotation=Any,
    )
    return call


def _as_it_is(result: Any) -> Any:
    return result


def _returned(operation: Operation) -> Any:
    return get_type_hints(operation.call).get("return")


def _has_files(operation: Operation) -> bool:
    """Files need components, which must not be visible; other arguments do without."""
    return any(
        _is_file(kind) for kind in (_returned(operation), *(argument.annotation for argument in operation.arguments))
    )


def _is_file(annotation: Any) -> bool:
    return annotation in (Path, Path | None)


def _component(parts: dict[str, Component], name: str, annotation: Any) -> Component:
    """The component for an argument or an answer of this name, which operations share."""
    if name not in parts:
        if _is_file(annotation):
            parts[name] = gr.File(label=name)
        elif annotation is int:
            parts[name] = gr.Number(label=name, precision=0)
        elif name == "settings":
            parts[name] = Api(None, _ANY_OBJECT, name)
        else:
            parts[name] = gr.JSON(label=name)
    return parts[name]
