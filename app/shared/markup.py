"""Icons and small pieces of markup that several components share."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from app.shared.format import (
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
from app.shared.glossary import explained, term
from app.shared.step_words import THRESHOLD_STATES, certificate_words
from coft_core.assets import assets_path
from coft_core.types import Certificate


def icon(name: str, classes: str = "") -> str:
    """A symbol in a line of text; hidden from screen readers, because the text beside it speaks."""
    return f'<svg class="icon {escape(classes)}" aria-hidden="true"><use href="#i-{name}"/></svg>'


def badge(state: str, text: str) -> str:
    """A state's mark and words."""
    return f'<span class="badge {escape(state)}">{escape(text)}</span>'


def certificate_state(text: str) -> str:
    """The state of a badge with a certificate's text."""
    return "calibrated" if Certificate.read(text).certified else "uninformative"


def threshold_words(state: str) -> str:
    """What a threshold rests on, as a badge says it."""
    return THRESHOLD_STATES.get(state, state)


_TEMPLATES = Environment(loader=FileSystemLoader(assets_path("templates")), autoescape=True, undefined=StrictUndefined)
_TEMPLATES.globals |= dict[str, Any](icon=lambda *it: Markup(icon(*it)), badge=lambda *it: Markup(badge(*it)))
_FORMATS = (abbreviated, clock, count, day, duration, level, plural, shown_token, signed, table_threshold)
_TEMPLATES.filters |= {"term": term, "explained": explained}
_TEMPLATES.filters |= {
    form.__name__: form for form in (certificate_state, certificate_words, threshold_words, *_FORMATS)
}
_LINE_END = re.compile(r"(?P<before>>|%\})?\s*\n\s*(?P<after><|\{%)?")


def html(template: str, **values: object) -> Markup:
    """Markup from a Jinja template whose values are escaped, unless they are markup themselves.

    A line end beside a tag or a statement leaves nothing behind and another one a space, so that a template can be laid
    out for its reader. Templates know :func:`icon` and :func:`badge`, and as filters the ways to write numbers, times
    and tokens of :mod:`app.shared.format`, and :func:`~app.shared.glossary.term` and
    :func:`~app.shared.glossary.explained`.
    """
    return Markup(_compiled(template).render(values))


def laid_out(path: str, **values: object) -> Markup:
    """:func:`html` with the template of a file in ``assets/templates``."""
    return html(_read(path), **values)


@cache
def _read(path: str) -> str:
    return assets_path("templates", *path.split("/")).read_text("utf-8")


@cache
def _compiled(template: str) -> Template:
    return _TEMPLATES.from_string(_LINE_END.sub(_joined, template.strip()))


def from_file(path: str, **values: object) -> Markup:
    """Markup from a file of ``assets/templates``, laid out as there; its values are escaped."""
    return Markup(_TEMPLATES.get_template(path).render(values))


def _joined(line_end: re.Match[str]) -> str:
    before, after = line_end["before"] or "", line_end["after"] or ""
    return f"{before}{'' if before or after else ' '}{after}"


def table(head: list[tuple[str, str]], rows: list[list[str]], classes: str = "", caption: str = "") -> str:
    """A table from cells that are markup already."""
    top = "".join(f'<th scope="col" class="{kind}">{term(Markup(title))}</th>' for title, kind in head)
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


def scrolled(name: str, content: Markup) -> Markup:
    """A table in a place of its own, in which it is scrolled sideways, by keys too, where it is wider than the page."""
    return html(
        '<div class="scrolls" tabindex="0" role="region" aria-label="{{ name }}, table">{{ content }}</div>',
        name=name,
        content=content,
    )
