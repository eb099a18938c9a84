"""The files of the paper: one page, and every table and figure by itself."""

from __future__ import annotations

import base64
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from app.evaluate import words
from app.evaluate.experiments.charts import picture_figure
from app.evaluate.experiments.figures import Experiment
from app.evaluate.experiments.grid import Grid
from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.experiments.service import grids_csv, grids_latex
from app.evaluate.exports import STYLES, table_fragment
from app.paper.claims import Checked
from app.paper.collate import Section
from app.paper.drawing import drawn
from app.paper.items import EXAMPLES, Item, paper_items
from app.paper.run import Part
from app.shared.exported import page
from app.shared.files import to_csv, write_bytes, write_text
from app.shared.format import plural

PAGE, CLAIMS = "paper.html", "claims.csv"
CLAIM_COLUMNS = ("where", "claim", "verdict", "figure", "value", "low", "high", "at_least", "at_most",
                 "paper_low", "paper_high", "why")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Made:
    """Everything that was made, and what was not."""

    out: Path
    only: tuple[str, ...]
    sections: tuple[Section, ...]
    parts: tuple[Part, ...]
    claims: tuple[Checked, ...]

    @property
    def skipped(self) -> tuple[Part, ...]:
        """What was not made."""
        return tuple(part for part in self.parts if part.reason)

    @property
    def verdicts(self) -> Counter[str]:
        """How many claims have each verdict."""
        return Counter(checked.verdict for checked in self.claims)

    def of(self, experiment: str) -> tuple[Section, ...]:
        """The tables of an experiment, one model after the other."""
        return tuple(own for own in self.sections if own.experiment == experiment)


@dataclass(frozen=True, slots=True)
class Shown:
    """An item of the paper on the page: which tables are below it, where they are else, or why there are none."""

    item: Item
    sections: tuple[tuple[Section, tuple[tuple[Grid, str, str], ...]], ...]
    about: tuple[Experiment, ...]
    above: str
    reasons: tuple[str, ...]

    @property
    def status(self) -> str:
        """Whether it is made."""
        if self.item.reason:
            return "not a measurement"
        return "made" if self.sections or self.above else "not made"


def write_section(out: Path, section: Section) -> None:
    """Write the tables and figures of a section, each file whole or not at all."""
    name = f"{section.experiment}.{_slug(section.model)}"
    write_text(out / "tables" / f"{name}.csv", grids_csv(section.grids))
    write_text(out / "tables" / f"{name}.tex", grids_latex(section.grids, section.model))
    for place, grid in enumerate(section.grids, start=1):
        if grid.picture is not None:
            for form, data in drawn(picture_figure(grid.picture), ("png", "pdf")).items():
                write_bytes(out / "figures" / f"{name}.{place}.{form}", data)


def write_page(made: Made) -> Path:
    """Write the page and the claims."""
    write_text(made.out / CLAIMS, to_csv(CLAIM_COLUMNS, (row for own in made.claims for row in claim_rows(own))))
    items = shown_items(made)
    content = page(
        "paper.html.j2", (*STYLES, "paper.css"), made=made, items=items, claims=made.claims, reading=reading,
        printed=printed, counts=Counter(own.status for own in items), plural=plural, slug=_slug,
    )  # fmt: skip
    return write_text(made.out / PAGE, content)


def shown_items(made: Made) -> list[Shown]:
    """What was asked for in the paper's order; tables that several items share are shown below the first of them."""
    first: dict[str, str] = {}
    found = []
    for item in paper_items():
        new = [name for name in item.experiments if name not in first and made.of(name)]
        above = next((first[name] for name in item.experiments if name in first), "")
        first |= dict.fromkeys(new, item.label)
        sections = tuple((own, tuple(map(_laid_out, own.grids))) for name in new for own in made.of(name))
        own = [part for part in made.parts if part.experiment in item.experiments]
        reasons = [f"{part.model}: {said}" for part in own for said in (part.reason, *part.notes) if said]
        if item.reason and not made.only:
            reasons = [item.reason]
        if not (sections or above or reasons):
            continue
        about = tuple(EXPERIMENTS[name] for name in new if name != EXAMPLES)
        found.append(Shown(item, sections, about, above, tuple(reasons)))
    return found


def _laid_out(grid: Grid) -> tuple[Grid, str, str]:
    """A table with its markup and its picture as the address of an image."""
    picture = ""
    if grid.picture is not None:
        data = drawn(picture_figure(grid.picture), ("svg",))["svg"]
        picture = f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}"
    return grid, table_fragment(grid.layout, grid.title), picture


# Claims.


def claim_rows(checked: Checked) -> list[dict[str, object]]:
    """A row a figure that a claim reads."""
    claim, printed = checked.claim, checked.printed or (None, None)
    told: dict[str, object] = {
        "where": claim.where, "claim": claim.says, "verdict": checked.verdict, "figure": "", "value": None, "low": None,
        "high": None, "at_least": claim.within[0], "at_most": claim.within[1], "paper_low": printed[0],
        "paper_high": printed[1], "why": checked.reason,
    }  # fmt: skip
    if not checked.found:
        return [told]
    return [
        {**told, "figure": name, "value": own.value, "low": own.low, "high": own.high} for name, own in checked.found
    ]


def reading(checked: Checked) -> list[tuple[str, str]]:
    """What our figures say, by what they are of."""
    digits = words.digits_for(own.value for _, own in checked.found)
    return [
        (name, f"{words.number(own.value, digits)} {words.interval(own.low, own.high, digits)}".strip() or "none")
        for name, own in checked.found
    ]


def printed(checked: Checked) -> str:
    """What the paper's own tables say, and whether that is the claim."""
    if checked.printed is None:
        return "no such figure"
    digits = words.digits_for(checked.printed)
    low, high = (words.number(end, digits) for end in checked.printed)
    span = low if low == high else f"{low} to {high}"
    return f"{span}: {'as claimed' if checked.holds_in_print else 'not as claimed'}"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
