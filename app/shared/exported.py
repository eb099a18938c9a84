"""HTML files that leave the program and need nothing else, from the templates of ``assets/reports``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from app.shared.format import moment, plural, short
from coft_core.assets import assets_path
from coft_core.effects import visible


def page(template: str, styles: Sequence[str], **values: object) -> str:
    """A file, with its style sheets in it; every text of it is escaped and made visible."""
    style = "".join((assets_path("reports") / name).read_text("utf-8") for name in styles)
    return fragment(template, style=Markup(style), **values)


def fragment(template: str, **values: object) -> Markup:
    """A part of such a file, which other pages can show too."""
    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(str(assets_path("reports"))),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"moment": moment, "plural": plural, "short": short, "in_line": _in_line, "f": "{:.1f}".format}
    return made


def _in_line(text: Markup) -> Markup:
    """Sentences in one line, with nothing between items of a list."""
    return Markup(re.sub(r" ?(</?li>) ?", r"\1", " ".join(text.split())))


def _shown(value: Any) -> Any:
    """A text that cannot reorder or hide what is beside it, whoever wrote it."""
    return visible(value) if type(value) is str else value
