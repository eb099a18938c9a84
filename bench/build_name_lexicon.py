"""Write the first-name lexicon from the first-name counts of the US Social Security Administration.

A name is gender-coded when one sex outnumbers the other at least ``--ratio`` to one, over all years and since
1950. The commonest such names of either sex are taken, and names that audits of hiring use because readers
connect them with a group. Names that are also words, months or places get a context rule; they are listed in
``name_groups.json`` beside this script, and those that texts also write in lower case are found by counting.

    python -m bench.build_name_lexicon --data first_names.csv.gz --texts FOLDER --out assets/lexicons/name.csv

The data file has the columns ``name, sex, count_1880_2020, count_1950_2020``. The last line printed is one
JSON object with the counts.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from bench.detector.labels import read_places

Counts = Mapping[str, Mapping[str, tuple[int, int]]]
Row = tuple[str, str, str, str, str, str, str, str]

HEADER = ("term", "family", "detail", "source", "case", "match", "forms", "context")
SOURCE = "US SSA, public domain"
DETAIL = {"F": "female first names", "M": "male first names"}

CONTEXT_RULES = (
    ("month_name", "months"),
    ("ambiguous_name", "mass_words"),
    ("countable_name", "other_words"),
    ("not_place", "places"),
)
OFTEN = 3
_LOWER_CASE = re.compile(r"\b[a-z]+\b")
GROUPS = Path(__file__).with_name("name_groups.json")


def main() -> None:
    """Read the counts, choose the names, write the file and print a summary."""
    parser = argparse.ArgumentParser(description="Write the gender-coded first-name lexicon.")
    parser.add_argument("--data", type=Path, required=True, help="first-name counts, .csv or .csv.gz")
    parser.add_argument("--texts", type=Path, required=True, help="folder of English texts, .txt.gz or .jsonl.gz")
    parser.add_argument("--out", type=Path, required=True, help="lexicon to write, .csv")
    parser.add_argument("--ratio", type=int, default=20, help="smallest ratio of the sexes")
    parser.add_argument("--per-sex", type=int, default=1500, help="commonest names to consider per sex")
    options = parser.parse_args()

    counts = read_counts(options.data)
    rows = choose_names(counts, options.ratio, options.per_sex, read_words(options.texts))
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(rows)
    summary = {detail: sum(row[2] == detail for row in rows) for detail in DETAIL.values()}
    print(json.dumps({"names": len(rows), **summary, "with_context": sum(bool(row[7]) for row in rows)}))


def read_counts(path: Path) -> Counts:
    """Read the counts of each name and sex."""
    counts: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            counts[row["name"]][row["sex"]] = int(row["count_1880_2020"]), int(row["count_1950_2020"])
    return counts


def read_words(folder: Path) -> frozenset[str]:
    """Words that the texts of a folder write in lower case, at least :data:`OFTEN` times."""
    counts = Counter[str]()
    for path in sorted((*folder.glob("*.txt.gz"), *folder.glob("*.jsonl.gz"))):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                counts.update(_LOWER_CASE.findall(line))
    return frozenset(word for word, count in counts.items() if count >= OFTEN)


def choose_names(counts: Counts, ratio: int, per_sex: int, words: frozenset[str] = frozenset()) -> list[Row]:
    """Choose the gender-coded names."""
    groups = read_groups()
    listed = frozenset[str]().union(*(groups[group] for _, group in CONTEXT_RULES))
    groups["other_words"] |= {name for name in counts if name.lower() in words} - listed
    places = read_places()
    groups["places"] |= {name for name in counts if name.lower() in places} - listed - groups["other_words"]
    extra = {name.capitalize() for name in groups["audit_names"]}
    shared = groups["shared_with_countries"]
    rows = [_row(name, "first names shared with countries", "curated", groups) for name in shared]
    for sex, other in (("F", "M"), ("M", "F")):
        coded = [name for name in counts if _is_coded(counts[name], sex, other, ratio)]
        coded.sort(key=lambda name: (-counts[name][sex][1], name))
        chosen = {*coded[:per_sex], *(name for name in coded if name in extra)} - groups["left_out"]
        rows += [_row(name, DETAIL[sex], SOURCE, groups) for name in chosen]
    return sorted(rows)


def read_groups() -> dict[str, frozenset[str]]:
    """Read the names that need care, by the group they belong to."""
    groups = json.loads(GROUPS.read_text(encoding="utf-8"))
    return {key: frozenset(" ".join(group["names"]).split()) for key, group in groups.items()}


def _is_coded(by_sex: Mapping[str, tuple[int, int]], sex: str, other: str, ratio: int) -> bool:
    own, others = by_sex.get(sex, (0, 0)), by_sex.get(other, (0, 0))
    return own[1] > 0 and own[0] >= ratio * others[0] and own[1] >= ratio * others[1]


def _row(name: str, detail: str, source: str, groups: Mapping[str, frozenset[str]]) -> Row:
    context = next((rule for rule, group in CONTEXT_RULES if name in groups[group]), "")
    return (name, "name", detail, source, "capital", "exact", "", context)


if __name__ == "__main__":
    main()
