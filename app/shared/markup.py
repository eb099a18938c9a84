"""Icons and small pieces of markup that several components share."""

from __future__ import annotations

import re
from functools import cache
from html import escape

import gradio as gr
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from app.shared.step_words import (
    abbreviated,
    clock,
    count,
    day,
    duration,
    level,
    plural,
    shown_token,
    signed,
    table_threshold,
)

SYMBOLS: dict[str, tuple[str, str]] = {
    "pin": (
        "0 0 12 12",
        '<path d="M6 7.5V11M3.2 7.5h5.6L7.8 5V2.2H4.2V5z" fill="currentColor" stroke="currentColor"'
        ' stroke-width="1.1" stroke-linejoin="round"/>',
    ),
    "tri": ("0 0 12 12", '<path d="M6 1.8 11 10.4H1z" fill="currentColor"/>'),
    "tick": ("0 0 14 14", '<path d="m2.5 7.5 3 3 6-7" fill="none" stroke="currentColor" stroke-width="1.8"/>'),
    "cross": ("0 0 14 14", '<path d="m3.5 3.5 7 7m0-7-7 7" fill="none" stroke="currentColor" stroke-width="1.5"/>'),
    "chev": ("0 0 14 14", '<path d="m5 3 4 4-4 4" fill="none" stroke="currentColor" stroke-width="1.5"/>'),
    "back": (
        "0 0 14 14",
        '<path d="M9.5 3 5 7l4.5 4M3.5 3v8" fill="none" stroke="currentColor" stroke-width="1.5"/>',
    ),
    "step": (
        "0 0 14 14",
        '<path d="M4.5 3 9 7l-4.5 4m6-8v8" fill="none" stroke="currentColor" stroke-width="1.5"/>',
    ),
    "run": ("0 0 14 14", '<path d="M4 2.8v8.4L11 7z" fill="currentColor"/>'),
    "pause": ("0 0 14 14", '<path d="M5 3v8M9 3v8" fill="none" stroke="currentColor" stroke-width="2"/>'),
    "rail": (
        "0 0 14 14",
        '<path d="M1.8 2.5h10.4v9H1.8zM5.5 2.5v9" fill="none" stroke="currentColor" stroke-width="1.3"/>',
    ),
    "half": (
        "0 0 14 14",
        '<circle cx="7" cy="7" r="5" fill="none" stroke="currentColor" stroke-width="1.4"/>'
        '<path d="M7 2a5 5 0 0 1 0 10z" fill="currentColor"/>',
    ),
    "down": ("0 0 14 14", '<path d="M7 2v7M3.8 6.2 7 9.4l3.2-3.2M2.5 12h9" fill="none" stroke="currentColor"'
             ' stroke-width="1.5"/>'),
    "copy": (
        "0 0 14 14",
        '<path d="M5 4.5h6.5v7H5zM2.5 9.5v-7H9" fill="none" stroke="currentColor" stroke-width="1.3"/>',
    ),
    "fair": (
        "0 0 12 12",
        '<circle cx="6" cy="6" r="5.2" fill="currentColor" stroke="none"/>'
        '<path d="m3.4 6.2 1.9 1.9 3.3-4" fill="none" style="stroke:var(--surface)" stroke-width="1.5"/>',
    ),
    "unfair": (
        "0 0 12 12",
        '<path d="M1.2 1.2h9.6v9.6H1.2z" fill="currentColor" stroke="none"/>'
        '<path d="m3.7 3.7 4.6 4.6m0-4.6L3.7 8.3" fill="none" style="stroke:var(--surface)" stroke-width="1.5"/>',
    ),
    "unclear": (
        "0 0 12 12",
        '<circle cx="6" cy="6" r="4.6" fill="none" stroke="currentColor" stroke-width="1.4"/>'
        '<circle cx="6" cy="6" r="1.4" fill="currentColor" stroke="none"/>',
    ),
    "disputed": (
        "0 0 12 12",
        '<path d="M6 .9 11.1 6 6 11.1.9 6z" fill="none" stroke="currentColor" stroke-width="1.3"/>'
        '<path d="M6 .9 11.1 6 6 11.1z" fill="currentColor" stroke="none"/>',
    ),
    "logo": (
        "0 0 18 18",
        '<path d="M3 4.5h7M3 13.5h7" stroke="currentColor" stroke-width="2" stroke-linecap="round" fill="none"/>'
        '<path d="M10 4.5c3 0 2 4.5 5 4.5-3 0-2 4.5-5 4.5" stroke="currentColor" stroke-width="2" fill="none"/>',
    ),
}  # fmt: skip


def sprite() -> str:
    """All symbols, once per page."""
    symbols = "".join(f'<symbol id="i-{name}" viewBox="{box}">{body}</symbol>' for name, (box, body) in SYMBOLS.items())
    return f'<svg class="sprite" width="0" height="0" aria-hidden="true">{symbols}</svg>'


def icon(name: str, classes: str = "") -> str:
    """A symbol in a line of text; hidden from screen readers, because the text beside it speaks."""
    return f'<svg class="icon {escape(classes)}" aria-hidden="true"><use href="#i-{name}"/></svg>'


def badge(state: str, text: str) -> str:
    """A state's mark and words."""
    return f'<span class="badge {escape(state)}">{escape(text)}</span>'


_TEMPLATES = Environment(autoescape=True, undefined=StrictUndefined)
_TEMPLATES.globals |= {"icon": lambda *words: Markup(icon(*words)), "badge": lambda *words: Markup(badge(*words))}
_FORMATS = (abbreviated, clock, count, day, duration, level, plural, shown_token, signed, table_threshold)
_TEMPLATES.filters |= {form.__name__: form for form in _FORMATS}
_LINE_END = re.compile(r"(?P<before>>|%\})?\s*\n\s*(?P<after><|\{%)?")


def html(template: str, **values: object) -> Markup:
    """Markup from a Jinja template whose values are escaped, unless they are markup themselves.

    A line end beside a tag or a statement leaves nothing behind and another one a space, so that a template can be laid
    out for its reader. Templates know :func:`icon` and :func:`badge`, and as filters the ways to write numbers, times
    and tokens of :mod:`app.shared.step_words`.

    Raises:
        jinja2.UndefinedError: The template names a value that is not given.
    """
    return Markup(_compiled(template).render(values))


@cache
def _compiled(template: str) -> Template:
    return _TEMPLATES.from_string(_LINE_END.sub(_joined, template.strip()))


def _joined(line_end: re.Match[str]) -> str:
    before, after = line_end["before"] or "", line_end["after"] or ""
    return f"{before}{'' if before or after else ' '}{after}"


def table(head: list[tuple[str, str]], rows: list[list[str]], classes: str = "", caption: str = "") -> str:
    """A table from cells that are markup already.

    Args:
        head: Column titles with their classes (``"n"`` aligns numbers).
        rows: One list of cells per row; a cell that begins with ``<td`` or ``<th`` is taken as it is.
        classes: Classes of the table.
        caption: Name for screen readers.
    """
    top = "".join(f'<th scope="col" class="{kind}">{title}</th>' for title, kind in head)
    body = "".join(
        "<tr>"
        + "".join(
            cell if cell.startswith(("<td", "<th")) else f'<td class="{head[i][1]}">{cell}</td>'
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    name = f'<caption class="vh">{escape(caption)}</caption>' if caption else ""
    return f'<table class="{classes}">{name}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


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


AUDIT_PICTURES = (
    (
        "strip",
        "Sensitivity along the chain",
        "darker: stronger; orange from 0.50 on; ▲ likelier with the attribute visible, ▼ masking raises it",
    ),
    (
        "scatter",
        "Candidates of the selected token",
        "on the diagonal masking changes nothing; what lies above both threshold lines passes",
    ),
    (
        "divergence",
        "How far fusion stays from the masked reading",
        "bars: KL of fused from masked; line: TV on the certified set; dashed: its bound",
    ),
    (
        "margin",
        "Distance to the threshold",
        "above zero: the token passes its threshold; under zero, hatched: it does not",
    ),
)
"""The audit page's pictures: name, title, what the marks mean."""


def tools(name: str, title: str) -> str:
    """Two buttons of a picture: its numbers as a table, and its file."""
    return (
        f'<span class="pictools" data-picture="{name}">'
        f'<button type="button" class="link" data-do="picture-numbers" aria-expanded="false"'
        f' aria-label="Numbers: {title}">numbers</button>'
        f'<button type="button" class="link" data-do="picture-image" aria-haspopup="menu" aria-expanded="false"'
        f' aria-controls="menu-image" aria-label="Image: {title}">image</button></span>'
    )


def numbers(name: str) -> str:
    """The place of a picture's numbers."""
    return f'<div class="pictable" data-table="{name}" hidden></div>'


def pictures() -> None:
    """Place the audit page's folded section of pictures, and the menu that all its images share."""
    body = "".join(_picture(*item) for item in AUDIT_PICTURES)
    gr.HTML(
        html_template=f"""<section aria-labelledby="h-pictures"><details class="pictures" hidden>
        <summary>{icon("chev", "chev")}<h2 id="h-pictures">Pictures</h2>
          <span class="hint">of the chain and of the selected token</span></summary>{body}</details>
        <p class="vh said" role="status"></p>{_menu()}</section>""",
        js_on_load="coft.pictures.mount(element)",
        apply_default_css=False,
        elem_id="pictures",
        elem_classes=["coft"],
    )


def _picture(name: str, title: str, hint: str) -> str:
    return (
        f'<figure class="picture" data-figure="{name}"><figcaption class="figcaption"><h3>{title}</h3>'
        f'{tools(name, title)}<span class="hint">{hint}</span></figcaption>'
        f'<div class="plot" data-plot="{name}"></div><p class="hint none" hidden></p>{numbers(name)}</figure>'
    )


def _menu() -> str:
    items = "".join(
        f'<button type="button" role="menuitem" tabindex="-1" data-format="{kind}"><span class="title">{title}</span>'
        f'<span class="hint">{why}</span></button>'
        for kind, title, why in (
            ("png", "PNG", "For slides and text: dots, at twice the size."),
            ("svg", "SVG", "For print and editing: lines, at any size."),
        )
    )
    return f'<div class="menu" id="menu-image" popover role="menu" aria-label="Image as">{items}</div>'
