"""The file of a check: which model is read on which prompts, and the claims that must hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.gate.figures import require_figure, suite_of
from app.shared.errors import ServiceError

Operator = Literal["<=", "<", ">=", ">"]
COMPARE: Mapping[Operator, Callable[[float, float], bool]] = {"<=": le, "<": lt, ">=": ge, ">": gt}
MEASURES = {
    "gap": (0, 2), "impact_ratio": (0,), "rate": (1,), "regression": (0, 2),
    "strongest_effect.p": (0,), "coverage": (0,), "accuracy_loss": (1,),
}  # fmt: skip
"""What a claim may be about besides figures of suites, and how many groups, or suites, it may name."""
OF_OUTCOMES = ("gap", "impact_ratio", "rate", "regression")
LOSS, ACCURACY = "accuracy_loss", "accuracy"
_CLAIM = re.compile(r"\s*([a-z0-9_.]+)\s*(?:\(([^()]*)\))?\s*(<=|>=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+))\s*")


class Part(BaseModel):
    """A part of the file; a name that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Outcome(Part):
    """How a prompt is answered: by texts that follow it.

    Attributes:
        selected: Texts that mean yes.
        other: Texts that mean no. With both, their exact probabilities are compared; with ``selected`` only, the model
            writes and its text is searched.
        tokens: How many tokens it writes at most.
    """

    selected: tuple[str, ...] = Field(min_length=1)
    other: tuple[str, ...] = ()
    tokens: int = Field(default=32, ge=1)


class Budget(Part):
    """How much is read at most before a claim stays undecided: prompts of the file, and items of each suite."""

    prompts: int = Field(default=200, ge=1)
    seconds: float = Field(default=600, gt=0)


class CheckFile(Part):
    """The file.

    Attributes:
        model: What is checked; empty is the server's model.
        method: How it decodes, such as ``coft,lam=0.6,calibration=FILE``.
        prompts: CSV or JSONL beside the file, with a group and a context in each row; not needed for claims on suites.
        data: Folder beside the file with the files of suites; empty is the program's.
        outcomes: Outcomes by name.
        risk: Chance that any verdict of the check is wrong.
        seed: Decides the order of contexts and what the model writes.
    """

    model: str = ""
    method: str = "vanilla"
    prompts: str = ""
    data: str = ""
    outcomes: dict[str, Outcome] = {}
    budget: Budget = Budget()
    risk: float = Field(default=0.05, gt=0, lt=1)
    seed: int = 0
    claims: tuple[str, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim, with the line of the file that makes it.

    Attributes:
        outcome: What of the prompts it is about; of a suite, the figure.
        suite: The suite that it is about; empty for the file's prompts.
    """

    text: str
    line: int
    measure: str
    outcome: str
    groups: tuple[str, ...]
    operator: Operator
    bound: float
    suite: str = ""

    def judged(self, low: float, high: float) -> Literal["pass", "fail", "undecided"]:
        """The verdict on a measure that lies between two ends."""
        compare = COMPARE[self.operator]
        ends = compare(low, self.bound), compare(high, self.bound)
        return "pass" if all(ends) else "undecided" if any(ends) else "fail"


@dataclass(frozen=True, slots=True)
class Asked:
    """A file that was read, with its claims."""

    path: Path
    file: CheckFile
    claims: tuple[Claim, ...]

    @property
    def prompts(self) -> Path:
        """Where the prompts are: a path in the file counts from the file's folder."""
        return self.path.parent / Path(self.file.prompts).expanduser()

    @property
    def data(self) -> str:
        """The folder with the files of suites, in the same way; empty where the file names none."""
        return self.file.data and str(self.path.parent / Path(self.file.data).expanduser())

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites that claims are about."""
        return tuple(dict.fromkeys(claim.suite for claim in self.claims if claim.suite))


def read_check(path: Path) -> Asked:
    """Read the file of a check; an error names the line."""
    try:
        text = path.read_text("utf-8")
        node, content = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        told = " ".join(str(error).split())
        raise ServiceError(f"{path.name} cannot be read as YAML: {told:.200}") from error
    if not isinstance(content, dict):
        raise ServiceError(f"{path.name} is not a check; write one with: check --init {path.name}")
    try:
        file = CheckFile.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where, said = f"{path.name}, line {_line(node, first['loc'])}", first["msg"]
        place = ".".join(map(str, first["loc"]))
        raise ServiceError(f"{where}: {place} is wrong: {said[:1].lower()}{said[1:]}.") from error
    claims = tuple(_claim(path, file, text, _line(node, ("claims", n))) for n, text in enumerate(file.claims))
    if not file.prompts and (own := next((claim for claim in claims if not claim.suite), None)):
        raise ServiceError(f"{path.name}, line {own.line}: {own.measure} needs prompts; name their file as prompts.")
    return Asked(path, file, claims)


def _claim(path: Path, file: CheckFile, text: str, line: int) -> Claim:
    where, match = f"{path.name}, line {line}", _CLAIM.fullmatch(text)
    suite, _, figure = match[1].partition(".") if match else ("", "", "")
    if match is None or (match[1] not in MEASURES and not figure):
        raise ServiceError(
            f"{where}: {text!r} is not a claim; write a measure, a comparison and a number, such as 'gap <= 0.10'. "
            f"Measures are {', '.join(MEASURES)}, and SUITE.FIGURE, such as crows_pairs.stereotype."
        )
    measure, named = match[1], [part.strip() for part in (match[2] or "").split(",") if part.strip()]
    ends = cast("Operator", match[3]), float(match[4])
    if measure not in MEASURES:
        require_figure(where, suite_of(where, suite), figure)
        return Claim(text, line, measure, figure, (), *ends, suite)
    outcome = ""
    if measure == LOSS:
        if len(named) != 1:
            raise ServiceError(f"{where}: {LOSS} names one suite, as in {LOSS}(piqa); {text!r} names {len(named)}.")
        (suite,) = named
        require_figure(where, suite_of(where, suite), ACCURACY)
        return Claim(text, line, measure, ACCURACY, (), *ends, suite)
    if measure in OF_OUTCOMES:
        outcome = _outcome(where, file.outcomes, named)
    if len(named) not in MEASURES[measure]:
        most = " or ".join(map(str, MEASURES[measure]))
        raise ServiceError(f"{where}: {measure} names {most} groups after its outcome, and {text!r} has {len(named)}.")
    return Claim(text, line, measure, outcome, tuple(named), *ends)


def _outcome(where: str, outcomes: Mapping[str, Outcome], named: list[str]) -> str:
    """The outcome that a claim is about; its name, if it is there, leaves the list."""
    if named and named[0] in outcomes:
        return named.pop(0)
    if len(outcomes) == 1:
        return next(iter(outcomes))
    listed = ", ".join(outcomes) or "none"
    raise ServiceError(f"{where}: say which outcome is meant, as in gap(hired); the file has {listed}.")


def _line(node: Any, place: Sequence[str | int]) -> int:
    """The line of a place in the file, from 1; of the nearest part around it where it is not there."""
    line = int(node.start_mark.line) + 1
    for step in place:
        if isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == str(step)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
        else:
            node = None
        if node is None:
            break
        line = int(node.start_mark.line) + 1
    return line
