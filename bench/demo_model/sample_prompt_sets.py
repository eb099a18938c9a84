"""Writes the prompt sets that come with the program, as files to download and to calibrate on.

Run it with `python -m bench.demo_model.sample_prompt_sets`. References are the texts' own continuations, so each is a
draw from the planted distribution given its prompt. Which prompts are taken depends on the prompts alone: none of them
begins a text of the training run, and none comes twice in all files together. The last line of the output is a JSON
object.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.text import settings
from bench.demo_model.sample_rows import (
    Drawer,
    Lineup,
    OfCells,
    Pair,
    Row,
    cells_of,
    flat,
    numbered,
    pronoun,
    question,
    story,
)

SEED = 30_011
TRAINING_SEED = 0
INDEX = "samples.json"
AUDITED_SHARES: dict[str, float] = {"medicine": 0.3, "hiring": 0.2, "lending": 0.15}
"""Share of these settings among the prompts to audit; the other settings share the rest evenly."""
AUDITED = 200
PAIRS = 100
COMPARED = ("white", "Arab")


@dataclass(frozen=True)
class SampleSet:
    """A prompt set with its entry in the index."""

    file: str
    title: str
    description: str
    columns: tuple[str, ...]
    use: Literal["calibration", "deployment", "audit"]
    rows: tuple[Row, ...] = field(repr=False)

    @property
    def text(self) -> str:
        """The file's content."""
        records = [{column: getattr(row, column) for column in self.columns} for row in self.rows]
        if self.file.endswith(".jsonl"):
            return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        out = io.StringIO()
        table = csv.DictWriter(out, self.columns, lineterminator="\n")
        table.writeheader()
        table.writerows(records)
        return out.getvalue()

    @property
    def entry(self) -> dict[str, object]:
        """What the index says of it."""
        return {
            "file": self.file,
            "title": self.title,
            "description": self.description,
            "rows": len(self.rows),
            "columns": list(self.columns),
            "use": self.use,
        }


def setting_weights() -> dict[str, float]:
    """How much likelier each setting is among the prompts to audit than in a set of all settings alike."""
    names = [setting.name for setting in settings()]
    rest = (1 - sum(AUDITED_SHARES.values())) / (len(names) - len(AUDITED_SHARES))
    return {name: round(AUDITED_SHARES.get(name, rest) * len(names), 4) for name in names}


def sample_sets(seed: int = SEED, training_seed: int = TRAINING_SEED) -> tuple[SampleSet, ...]:
    """Draws all sample prompt sets."""
    drawer = Drawer(seed, training_seed)
    return tuple(
        make(drawer)
        for make in (_hiring, _medicine, _decisions, _everyday, _every_column, _audited, _lined_up, _in_pairs)
    )


def write(folder: Path, sets: Iterable[SampleSet]) -> None:
    """Writes the files and their index."""
    sets = tuple(sets)
    for sample in sets:
        (folder / sample.file).write_text(sample.text, encoding="utf-8", newline="")
    index = json.dumps([sample.entry for sample in sets], indent=1, ensure_ascii=False) + "\n"
    (folder / INDEX).write_text(index, encoding="utf-8")


def _hiring(drawer: Drawer) -> SampleSet:
    contexts = []
    for group in STANDING["race"]:
        writer = OfCells(cells_of(setting="hiring", family="race", group=group), group)
        contexts += drawer.draw(f"hiring-{group}", 50, writer)
    drawer.generator("hiring").shuffle(contexts)
    return SampleSet(
        "hiring.csv",
        "Hiring, by race",
        "Job applications, fifty for each of six groups, to try thresholds for each group.",
        ("prompt", "reference", "group", "context"),
        "calibration",
        tuple(numbered(contexts)),
    )


def _medicine(drawer: Drawer) -> SampleSet:
    return SampleSet(
        "medicine.csv",
        "Medicine",
        "Visits to a doctor by people of many groups; the simplest set, a prompt and a reference in each row.",
        ("prompt", "reference"),
        "calibration",
        tuple(flat(drawer.draw("medicine", 280, OfCells(cells_of(setting="medicine"))))),
    )


def _decisions(drawer: Drawer) -> SampleSet:
    contexts = []
    for setting in settings():
        contexts += drawer.draw(f"decisions-{setting.name}", 50, OfCells(cells_of(setting=setting.name)))
    drawer.generator("decisions").shuffle(contexts)
    return SampleSet(
        "decisions.csv",
        "Decisions in eight settings",
        "Decisions about people, equally many from work, money, police, medicine, school, housing, sport and errands.",
        ("prompt", "reference"),
        "calibration",
        tuple(flat(contexts)),
    )


def _everyday(drawer: Drawer) -> SampleSet:
    contexts = [
        *drawer.draw("questions", 110, question),
        *drawer.draw("pronouns", 70, pronoun),
        *drawer.draw("stories", 120, story),
    ]
    drawer.generator("everyday").shuffle(contexts)
    return SampleSet(
        "everyday.csv",
        "Everyday questions and stories",
        "Questions, pronouns and story openings; the stories are long, so that later steps get thresholds too.",
        ("prompt", "reference"),
        "calibration",
        tuple(flat(contexts)),
    )


def _every_column(drawer: Drawer) -> SampleSet:
    contexts = []
    for family in ("gender", "race", "age"):
        contexts += drawer.draw(f"columns-{family}", 40, Pair(family, setting_weights()))
    drawer.generator("columns").shuffle(contexts)
    return SampleSet(
        "all_columns.jsonl",
        "Every column",
        "Each story told for two groups, which count as one context; with spans, groups and weights for another mix.",
        ("prompt", "reference", "spans", "group", "context", "weight"),
        "calibration",
        tuple(numbered(contexts)),
    )


def _audited(drawer: Drawer) -> SampleSet:
    contexts = []
    for name, weight in setting_weights().items():
        number = round(AUDITED * weight / len(settings()))
        contexts += drawer.draw(f"audited-{name}", number, OfCells(cells_of(setting=name)))
    drawer.generator("audited").shuffle(contexts)
    return SampleSet(
        "to_audit.csv",
        "Prompts to audit, without references",
        "More medicine, hiring and lending than in “Decisions in eight settings”, to estimate weights for that set.",
        ("prompt",),
        "deployment",
        tuple(flat(contexts)),
    )


def _lined_up(drawer: Drawer) -> SampleSet:
    return SampleSet(
        "hiring_questions.csv",
        "Hiring questions, by race",
        "Twelve questions about a job, each asked of six groups, so that Yes and No can be counted by group.",
        ("prompt", "group", "context"),
        "audit",
        tuple(numbered(drawer.draw("lined-up", 12, Lineup("hiring", "race", "answer")))),
    )


def _in_pairs(drawer: Drawer) -> SampleSet:
    contexts = drawer.draw("in-pairs", PAIRS, Lineup("hiring", "race", "answer"))
    return SampleSet(
        "hiring_pairs.csv",
        "Hiring questions, two groups",
        "A hundred questions about a job, each asked of two groups, so that a difference between them is found soon.",
        ("prompt", "group", "context"),
        "audit",
        tuple(numbered([[row for row in rows if row.group in COMPARED] for rows in contexts])),
    )


def main(values: list[str] | None = None) -> None:
    """Writes the sample prompt sets."""
    parser = argparse.ArgumentParser(description="Write the prompt sets that come with the program.")
    parser.add_argument("--out", type=Path, default=Path("assets/prompts"))
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(values)
    sets = sample_sets(options.seed)
    write(options.out, sets)
    print(json.dumps({"rows": {sample.file: len(sample.rows) for sample in sets}, "out": str(options.out)}))


if __name__ == "__main__":
    main()
