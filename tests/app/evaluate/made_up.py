"""Small suites that exist in tests alone, and services that evaluate on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.evaluate.judging import Judges, LoadedJudge
from app.evaluate.runs import EvaluationRequest
from app.evaluate.service import EvaluationService
from app.evaluate.sources import SuiteSources
from app.shared.wiring import Services
from coft_core.suites.base import Card, Choices, Figure, Item, Outcome, Outside, Suite, Writing
from coft_core.suites.files import DataFolder, HubSplit, HubUnreachableError
from coft_core.suites.reading import Reader
from coft_core.suites.sources import Source
from coft_core.suites.statistics import mean_figure
from coft_core.types import Span

CARD = Card("Nothing.", "All.", "It is made up.", "None.")


class Quiz(Suite):
    """Forty questions of twenty units, each with a reference."""

    key, title, kind, main = "quiz", "Quiz", "utility", "share"
    citation, licence, card = "Nobody", "None", CARD

    def items(self, data: DataFolder) -> list[Item]:
        return [
            Item(
                f"q{number}", f"u{number // 2}",
                (Choices(f"{'He' if number % 2 else 'She'} said number {number} that", (" a", " b c"), (Span(0, 2 + (
                    number % 2 == 0), "gender"),)),),
                {"right": number % 2},
            )
            for number in range(40)
        ]  # fmt: skip

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        first = [float(outcome.scored().log_likelihoods(outside)[0]) for outcome in outcomes]
        return [mean_figure("share", "Share", [outcome.unit for outcome in outcomes], first)]

    def reference(self, item: Item) -> str | None:
        return " a long way off"


class Prose(Quiz):
    """Twelve prompts that are continued; nothing says how they go on."""

    key, title, judges = "prose", "Prose", ("length",)

    def items(self, data: DataFolder) -> list[Item]:
        return [
            Item(f"p{number}", f"u{number}", (Writing(f"He went to town {number} and", 4 + number % 3),))
            for number in range(12)
        ]

    def reference(self, item: Item) -> str | None:
        return None


class Missing(Quiz):
    """Its file is nowhere."""

    key, title = "missing", "Missing"

    def items(self, data: DataFolder) -> list[Item]:
        return [Item(str(line.number), "u", (Choices("P", (" a",)),)) for line in data.json_lines("missing", "m.jsonl")]


class Far(Quiz):
    """On a hub that does not answer."""

    key, title = "far", "Far away"
    source = Source(hub=(HubSplit("far/away", "test"),))

    def items_from_hub(self) -> list[Item]:
        raise HubUnreachableError("The data set far/away is")


class Farther(Far):
    """On the same hub."""

    key, title = "farther", "Farther away"


MADE_UP = (Quiz(), Prose(), Missing(), Far(), Farther())


def evaluations_of(wired: Services, reader: Callable[..., object] = Reader, folder: str = "") -> EvaluationService:
    """The service, on suites that are made up."""
    return EvaluationService(wired, SuiteSources(folder, MADE_UP), reader, judged_by_length)


def judged_by_length(request: EvaluationRequest, suites: Sequence[Suite], device: str) -> Judges:
    """A judge of texts that counts their characters."""

    def read(outcomes: Sequence[Outcome]) -> list[Outcome]:
        return [replace(each, marks={"length": tuple(float(len(a.text)) for a in each.answers)}) for each in outcomes]

    judge = LoadedJudge("1", read)
    return Judges({suite.key: {name: judge for name in suite.judges if name == "length"} for suite in suites})
