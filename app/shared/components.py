"""Gradio components that several pages place, made of the program's own markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from app.shared.markup import from_file


def place(
    path: str, script: str | None = None, name: str | None = None, classes: Sequence[str] = ("coft",), **values: object
) -> gr.HTML:
    """Place a component whose markup is a file's; a script brings it to life, and Gradio offers the events it names."""
    scripts: dict[str, Any] = {} if script is None else {"js_on_load": script}
    return gr.HTML(
        html_template=str(from_file(path, **values)),
        apply_default_css=False,
        elem_id=name,
        elem_classes=[*classes],
        **scripts,
    )


def markup(value: str, name: str | None = None) -> gr.HTML:
    """A piece of the page's own markup."""
    return gr.HTML(value, apply_default_css=False, elem_id=name, elem_classes=["coft"])


def hint(text: str, name: str | None = None) -> gr.HTML:
    """A quiet line under a control."""
    return gr.HTML(f'<p class="hint">{text}</p>', apply_default_css=False, elem_id=name, elem_classes=["coft", "note"])


def listing(name: str, *events: str, value: str = "") -> gr.HTML:
    """A list whose buttons, by the names in ``data-do``, trigger events with the number of their entry."""
    # Gradio offers the events whose names it finds in this script.
    named = " ".join(f"'{event}'" for event in events)
    return gr.HTML(
        value,
        js_on_load=f"coft.list.mount(element, trigger); /* {named} */",
        apply_default_css=False,
        elem_id=name,
        elem_classes=["coft"],
    )


def upload(label: str, name: str, endings: tuple[str, ...] = (".csv", ".jsonl")) -> gr.File:
    """A field that takes one file."""
    return gr.File(
        label=label, show_label=False, file_types=[*endings], height=92, elem_id=name, elem_classes=["upload"]
    )


def chart(name: str, visible: bool = True) -> gr.Plot:
    """A chart."""
    return gr.Plot(show_label=False, container=False, elem_classes=["chart"], elem_id=name, visible=visible)
