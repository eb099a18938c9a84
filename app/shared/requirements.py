"""A map for officers: which field of the evidence answers a requirement, and what the evidence does not show."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from app.shared.errors import ServiceError
from app.shared.formal_reports import Statement
from coft_core.assets import assets_path
from coft_core.messages import catalogue

FIELDS = (
    "finding", "counts", "strongest", "thresholds", "verdicts", "blind", "warnings", "model", "method", "question",
    "auditor", "date", "nyc.selection", "nyc.scoring", "nyc.categories", "nyc.unknown", "nyc.small", "nyc.data",
    "eu12.events", "eu12.log", "eu12.versions", "eu12.digests", "eu12.check", "eu15.declared", "eu15.consistent",
    "eu15.errors",
)  # fmt: skip
"""What a requirement can name; those with a law before the dot are answers of the report's own annexes."""

_PLACE = re.compile(r"\{([a-z0-9.]+)\}")


@dataclass(frozen=True, slots=True)
class MapRow:
    """A requirement, what the evidence has for it, and what it lacks."""

    source: str
    wording: str
    values: tuple[str, ...]
    lacks: str


@dataclass(frozen=True, slots=True)
class MapAnnex:
    """The requirements of one source, or the paragraphs of a document that is filled from the evidence."""

    name: str
    title: str
    about: str
    notice: str
    rows: tuple[MapRow, ...] = ()
    text: tuple[str, ...] = ()


@cache
def listed() -> dict[str, Any]:
    """The file, with its annexes by name."""
    data = tomllib.loads(assets_path("controls.toml").read_text("utf-8"))
    return {"as_of": data["as_of"], "annexes": {annex["id"]: annex for annex in data["annex"]}}


def chosen(names: str) -> tuple[str, ...]:
    """The annexes that a list with commas names."""
    wanted, known = tuple(name.strip() for name in names.split(",") if name.strip()), listed()["annexes"]
    if unknown := next((name for name in wanted if name not in known), None):
        raise ServiceError(f"There is no annex {unknown!r}; choose from {', '.join(known)}.")
    return wanted


def mapped(statement: Statement, evidence: Mapping[str, str | None]) -> list[MapAnnex]:
    """The annexes that a statement asks for, with the evidence's values in them."""
    say, language = catalogue(statement.language), statement.language
    absent, made = say.say("map.absent"), []

    def value(name: str) -> str:
        return evidence.get(name) or absent

    notice = say.say("map.notice", day=listed()["as_of"])
    for name in statement.annexes:
        annex = listed()["annexes"][name]
        rows = tuple(
            MapRow(row["source"], row[language], tuple(map(value, row["fields"])), row["lacks"][language])
            for row in annex.get("row", ())
        )
        text = tuple(_PLACE.sub(lambda found: value(found[1]), part) for part in annex.get("text", ()))
        made.append(MapAnnex(name, annex["title"][language], annex["about"][language], notice, rows, text))
    return made
