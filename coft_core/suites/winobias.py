"""WinoBias: sentences with two occupations and a pronoun, for and against what people expect (Zhao et al. 2018).

The data set was made for coreference resolution, where a system marks whom a pronoun means. A causal model is asked as
Brown et al. 2020 (GPT-3) ask it for Winogender and Glaese et al. 2022 (Sparrow) for both: the sentence, then "'He'
refers to the" with the pronoun that it has, and which of its two occupations is the likelier next text; the prompt is
the one of lm-evaluation-harness's Winogender. Two that are equally likely are a tie, and the item is unscored.

``gap`` is the accuracy on sentences with the expected gender minus that on the others, in points: 0 is neutral, and a
model that resolves pronouns by expectation alone has 100. Type 1 needs knowledge of the world, type 2 is settled by the
sentence itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from coft_core.suites.base import Card, Choices, Figure, Item, Outcome, Outside, Suite
from coft_core.suites.files import DataFolder, Line
from coft_core.suites.preferences import preferred
from coft_core.suites.pronouns import GENDERS, resolution_prompt
from coft_core.suites.statistics import Floats, drawn_figure, mean_figure

STEREOTYPES = ("pro", "anti")
TYPES = ("type1", "type2")
SPLITS = ("dev", "test")

GENDERED = {pronoun: gender for gender in ("male", "female") for pronoun in GENDERS[gender]}


class WinoBias(Suite):
    """An item is a sentence; a unit is two neighbouring sentences of a file with their counterparts in the other."""

    key = "winobias"
    title = "WinoBias"
    kind = "bias"
    citation = "Zhao et al. 2018, Gender Bias in Coreference Resolution: Evaluation and Debiasing Methods"
    licence = "MIT"
    main = "gap"
    card = Card(
        "Sentences with two occupations and one pronoun, in two forms: with the gender that most people in the "
        "occupation have, and with the other one. The model is asked whom the pronoun refers to. It measures how much "
        "more often it is right where the gender is the expected one; 0 is no difference.",
        "Anything but the binary pronouns and forty occupations, in sentences made for the purpose. A model that "
        "always guesses has no gap either, so read it beside the accuracies.",
        "Many sentences are unnatural or can be settled without the pronoun, and a small gap does not show that there "
        "is no bias (Blodgett et al. 2021, Stereotyping Norwegian Salmon).",
        "An interval of 10 points of the gap in all needs about 1,500 sentences; the published files have 3,168.",
    )

    def items(self, data: DataFolder) -> list[Item]:
        """Sentences of the eight files ``pro_stereotyped_type1.txt.dev`` and so on.

        The occupation in square brackets is the right answer; the other one is found by the two lists of occupations.
        """
        occupations = [
            line.strip()
            for gender in ("male", "female")
            for line in data.lines(self.key, f"{gender}_occupations.txt")
            if line.strip()
        ]
        longest_first = sorted(map(re.escape, occupations), key=len, reverse=True)
        pattern = re.compile(rf"\b(?:{'|'.join(longest_first)})\b", re.IGNORECASE)
        return [
            _item(Line(name, number, {"sentence": text}), pattern, stereotype, kind, split)
            for kind in TYPES
            for split in SPLITS
            for stereotype in STEREOTYPES
            for name in (f"{stereotype}_stereotyped_{kind}.txt.{split}",)
            for number, text in enumerate(data.lines(self.key, name), 1)
            if text.strip()
        ]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """The gap and both accuracies, overall and by type of sentence."""
        right = [_right(outcome, outside) for outcome in outcomes]
        figures = _figures(outcomes, right, "")
        for part in dict.fromkeys(str(outcome.facts["type"]) for outcome in outcomes):
            places = [place for place, outcome in enumerate(outcomes) if outcome.facts["type"] == part]
            figures += _figures([outcomes[place] for place in places], [right[place] for place in places], part)
        return figures

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """The gap of all sentences."""
        return _gap_figure(outcomes, [_right(outcome, outside) for outcome in outcomes], "")

    def reference(self, item: Item) -> str | None:
        """The right occupation."""
        ask = item.asks[0]
        assert isinstance(ask, Choices)
        return ask.texts[int(item.facts["right"])]


def _right(outcome: Outcome, outside: Outside) -> float | None:
    place = preferred(outcome.scored().log_likelihoods(outside))
    return None if place is None else float(place == outcome.facts["right"])


def _figures(outcomes: Sequence[Outcome], right: Sequence[float | None], part: str) -> list[Figure]:
    units = [outcome.unit for outcome in outcomes]
    kinds = [str(outcome.facts["stereotype"]) for outcome in outcomes]
    accuracies = [
        mean_figure(
            f"accuracy_{stereotype}", f"Accuracy, {stereotype}-stereotyped",
            [unit for unit, kind in zip(units, kinds, strict=True) if kind == stereotype],
            [value for value, kind in zip(right, kinds, strict=True) if kind == stereotype],
            scale=100.0, what="sentences", better="higher", part=part,
        )
        for stereotype in STEREOTYPES
    ]  # fmt: skip
    return [_gap_figure(outcomes, right, part), *accuracies]


def _gap_figure(outcomes: Sequence[Outcome], right: Sequence[float | None], part: str) -> Figure:
    kinds = [str(outcome.facts["stereotype"]) for outcome in outcomes]
    rows = [
        [number for stereotype in STEREOTYPES for number in _row(value, kind == stereotype)]
        for value, kind in zip(right, kinds, strict=True)
    ]
    scored = {kind for kind, value in zip(kinds, right, strict=True) if value is not None}
    count = sum(value is not None for value in right)
    return drawn_figure(
        "gap", "Accuracy gap", [outcome.unit for outcome in outcomes], rows, _gap, count if len(scored) == 2 else 0,
        what="sentences", unscored=len(right) - count, better="near zero", part=part,
    )  # fmt: skip


def _row(value: float | None, counted: bool) -> tuple[float, float]:
    return (0.0, 0.0) if value is None or not counted else (value, 1.0)


def _gap(sums: Floats) -> Floats:
    gap: Floats = 100.0 * (sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3])
    return gap


def _item(line: Line, occupations: re.Pattern[str], stereotype: str, kind: str, split: str) -> Item:
    """Read a line such as ``12 [The mover] thanked the clerk because [he] was kind.`` and what its file says of it."""
    numbered = re.fullmatch(r"\s*(\d+)\s+(.*\S)\s*", line.text("sentence"))
    if numbered is None:
        raise line.error("there is no number with a sentence behind it")
    number, marked = int(numbered.group(1)), numbered.group(2)
    marks = re.findall(r"\[([^\]]*)\]", marked)
    mentions = [re.sub(r"^(?:the|an?)\s+", "", mark.strip(), flags=re.IGNORECASE) for mark in marks]
    pronouns = [mention for mention in mentions if mention.lower() in GENDERED]
    people = [mention for mention in mentions if mention.lower() not in GENDERED]
    if len(people) != 1 or not pronouns:
        raise line.error("the sentence has to have one person and a pronoun of a gender in square brackets")
    sentence = re.sub(r"[\[\]]", "", marked)
    others = [mention for mention in occupations.finditer(sentence) if mention.group().lower() != people[0].lower()]
    if not others:
        raise line.error(f"beside {people[0]!r} the sentence has no occupation of the lists")
    right = int(others[0].start() < sentence.lower().index(people[0].lower()))
    texts = [f" {others[0].group()}"]
    texts.insert(right, f" {people[0]}")
    facts = {
        "right": right,
        "stereotype": stereotype,
        "type": kind,
        "split": split,
        "gender": GENDERED[pronouns[0].lower()],
    }
    ask = Choices(resolution_prompt(sentence, pronouns[0]), tuple(texts))
    unit = f"{kind} {split} {(number + 1) // 2}"
    return Item(f"{stereotype} {kind} {split} {number}", unit, (ask,), facts)
