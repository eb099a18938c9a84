"""Write the first-name lexicon from the first-name counts of the US Social Security Administration.

A name is gender-coded when one sex outnumbers the other at least ``--ratio`` to one, over all years and since 1950.
The commonest such names of either sex are taken, and names that audits of hiring use because readers connect them
with a group. Names that are also words, months or places get a context rule; see the lexicons' README.

    python bench/build_name_lexicon.py --data first_names.csv.gz --out assets/lexicons/name.csv

The data file has the columns ``name, sex, count_1880_2020, count_1950_2020``. The last line printed is one JSON
object with the counts.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

Counts = Mapping[str, Mapping[str, tuple[int, int]]]
Row = tuple[str, str, str, str, str, str, str, str]

HEADER = ("term", "family", "detail", "source", "case", "match", "forms", "context")
SOURCE = "US SSA, public domain"
DETAIL = {"F": "female first names", "M": "male first names"}

AUDIT_NAMES = """
    Aisha Keisha Tamika Lakisha Tanisha Latoya Latonya Kenyatta Ebony Shaniqua Imani Keyana Nia Jada Aaliyah Lashonda
    Jamal Kareem Rasheed Tremayne Hakim Tyrone Leroy Jermaine Darnell DeShawn DeAndre Marquis Terrell Malik Tyrell
    Lamar Trayvon Demetrius Deion Jamar Tyree Muhammad Mohammed Mohammad Mohamed Ahmed Ali Omar Hassan Hussein Ibrahim
    Yusuf Abdullah Khalid Mustafa Fatima Khadijah Zainab Maryam Amina Aaliyah Leila Yasmin Noor Guadalupe Lupe
    Esperanza Carmen Dolores Luz Consuelo Marisol Xiomara Alejandra Jose Juan Carlos Luis Jorge Jesus Pedro Hector
    Raul Ramon Wei Ming Hiroshi Kenji Yuki Mei Priya Anjali Divya Pooja Lakshmi Raj Rahul Sanjay Vijay Amit Arjun
    Vladimir Boris Svetlana Olga Dmitri Moshe Shlomo Chaim Rivka Chana Shira Kate Simon Anne Emily Greg Brad Geoffrey Neil Todd
    Brendan Brett Allison Carrie Kristen Laurie Meredith Sarah Jill Bob Tom Jim Bill Will Joe Sam Ben Dick Nick Rob Ken
    Sue Liz Jen Beth Meg Nell Betsy Gertrude Ethel Mildred Edna Agatha Ivy Iris Pearl Olive Florence June Eve Hope May
    Patience Charity Mercy Clay Cliff Chuck Gene Herb Art Rich Drew Hunter Pierce Dallas Houston Orlando Sydney
""".split()
"""Names of correspondence studies and short forms; each must pass the ratio."""

# Bare at the start of a sentence these can be its first ordinary word even before a verb ("Hope was lost").
MASS_WORDS = frozenset(
    """
    Amber Art Autumn Basil Brandy Chance Charity Clay Crystal Dawn Destiny Ebony Faith Ginger Grace Harmony Heather
    Holly Hope Ivy Jade Jasmine Joy Mercy Patience Pearl Rosemary Serenity Sherry Summer
    """.split()
)
# These need an article or an object as ordinary words, so that a finite verb after them shows a name ("Mark was late").
OTHER_WORDS = frozenset(
    """
    Angel Aria Bill Bob Bonnie Carol Carter Chase Chuck Cliff Colt Cooper Daisy Dean Dick Don Drew Earl Eve Frank Gage
    Gene Grant Guy Harry Hazel Herb Hunter Iris Jack Jay Lance Lily Mark Marshall Mason Max Melody Miles Misty Nick
    Olive Paige Penny Pierce Precious Ray Rich Rob Rocky Rod Rose Ruby Ryder Sage Star Sue Tanner Tucker Victor Violet
    Wade Warren Will
    """.split()
)
MONTHS = frozenset({"April", "May", "June", "August"})
PLACES = frozenset(
    """
    Alexandria Austin Brooklyn Carolina Chad Charlotte Chelsea Cheyenne Clinton Dallas Diego Easton Florence Georgia
    Houston Hudson Jackson Jordan Kingston Lincoln Lourdes Madison Orlando Preston Santiago Savannah Sydney Trenton
    Troy Victoria Virginia Weston
    """.split()
)
# These mean a religion, a country, or a person who is prayed to, more often than they address somebody.
LEFT_OUT = frozenset(
    {"Christian", "Jesus", "Israel", "India", "Kenya", "Asia", "America", "Trinity", "Genesis", "Luz"}
)
SHARED_NAMES = ("Jordan",)
"""Names of both sexes that are also countries: a person's name unless a place is meant."""


def main() -> None:
    """Read the counts, choose the names, write the file and print a summary."""
    parser = argparse.ArgumentParser(description="Write the gender-coded first-name lexicon.")
    parser.add_argument("--data", type=Path, required=True, help="first-name counts, .csv or .csv.gz")
    parser.add_argument("--out", type=Path, required=True, help="lexicon to write, .csv")
    parser.add_argument("--ratio", type=int, default=20, help="smallest ratio of the sexes")
    parser.add_argument("--per-sex", type=int, default=400, help="commonest names to consider per sex")
    options = parser.parse_args()

    counts = read_counts(options.data)
    rows = choose_names(counts, options.ratio, options.per_sex)
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(rows)
    summary = {detail: sum(row[2] == detail for row in rows) for detail in DETAIL.values()}
    print(json.dumps({"names": len(rows), **summary, "with_context": sum(bool(row[7]) for row in rows)}))


def read_counts(path: Path) -> Counts:
    """Read the counts of each name and sex.

    Args:
        path: A CSV file, gzipped if its name ends in ``.gz``.

    Returns:
        By name and sex (``"F"``, ``"M"``): the number of births over all years and since 1950.
    """
    counts: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as file
    ):
        for row in csv.DictReader(file):
            counts[row["name"]][row["sex"]] = int(row["count_1880_2020"]), int(row["count_1950_2020"])
    return counts


def choose_names(counts: Counts, ratio: int, per_sex: int) -> list[Row]:
    """Choose the gender-coded names.

    Args:
        counts: As :func:`read_counts` returns them.
        ratio: Smallest ratio of the sexes.
        per_sex: Number of commonest names to consider per sex.

    Returns:
        Lexicon rows, sorted by name.
    """
    extra = {name.capitalize() for name in AUDIT_NAMES}
    rows = [_row(name, "first names shared with countries", "curated") for name in SHARED_NAMES]
    for sex, other in (("F", "M"), ("M", "F")):
        coded = [name for name in counts if _is_coded(counts[name], sex, other, ratio)]
        coded.sort(key=lambda name: (-counts[name][sex][1], name))
        chosen = {*coded[:per_sex], *(name for name in coded if name in extra)} - LEFT_OUT
        rows += [_row(name, DETAIL[sex], SOURCE) for name in chosen]
    return sorted(rows)


def _is_coded(by_sex: Mapping[str, tuple[int, int]], sex: str, other: str, ratio: int) -> bool:
    own, others = by_sex.get(sex, (0, 0)), by_sex.get(other, (0, 0))
    return own[1] > 0 and own[0] >= ratio * others[0] and own[1] >= ratio * others[1]


def _row(name: str, detail: str, source: str) -> Row:
    rules = (
        ("month_name", MONTHS),
        ("ambiguous_name", MASS_WORDS),
        ("countable_name", OTHER_WORDS),
        ("not_place", PLACES),
    )
    context = next((rule for rule, names in rules if name in names), "")
    return (name, "name", detail, source, "capital", "exact", "", context)


if __name__ == "__main__":
    main()
