"""The small pieces that many pages are made of: own markup, a quiet line, a list of buttons, an upload, a chart."""

from __future__ import annotations

import gradio as gr


def markup(value: str, name: str | None = None) -> gr.HTML:
    """A piece of the page's own markup."""
    return gr.HTML(value, apply_default_css=False, elem_id=name, elem_classes=["coft"])


def hint(text: str, name: str | None = None) -> gr.HTML:
    """A quiet line under a control."""
    return gr.HTML(f'<p class="hint">{text}</p>', apply_default_css=False, elem_id=name, elem_classes=["coft", "note"])


def listing(name: str, *events: str, value: str = "") -> gr.HTML:
    """A list whose buttons trigger events with the number of their entry.

    Args:
        name: Its ``elem_id``.
        events: The events, by the names that the buttons carry in ``data-do``.
        value: Its first markup.
    """
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
