"""Named experiments: which suites and methods a table of the paper needs, and what the paper says.

An experiment is a YAML file, shipped in ``assets/experiments`` or a user's own. It is checked when it is read; what is
wrong is named with its file and field.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.evaluate.methods import methods_from
from app.evaluate.runs import EvaluationMethod, EvaluationRequest
from app.shared.audits import AuditSettings
from coft_core.experiments.averages import Part, Shown
from coft_core.experiments.choice import VALIDATION_SHARE
from coft_core.experiments.front import Averaged

KNOBS = {"lam": "lambda", "alpha": "alpha"}
"""What can be swept, and how it is called."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MethodEntry(_Entry):
    """A method of an experiment."""

    method: str
    needs: dict[str, str] = Field(default_factory=dict)
    stands_in: str = ""


class SweepEntry(_Entry):
    """A method at several values of one setting."""

    knob: Literal["lam", "alpha"]
    values: tuple[float, ...] = Field(min_length=2)
    method: str = "coft:calibrated"
    validation: Annotated[float, Field(gt=0, lt=1)] = VALIDATION_SHARE

    def label(self, value: float) -> str:
        """The method's label at a value."""
        return f"{KNOBS[self.knob]} {value:g}"

    @property
    def methods(self) -> tuple[str, ...]:
        """The method at each value, as a command names it."""
        return tuple(
            f"{self.label(value)}={self.method}{',' if ':' in self.method else ':'}{self.knob}={value:g}"
            for value in self.values
        )


class PartEntry(_Entry):
    """A figure of an average; see :class:`coft_core.experiments.averages.Part`."""

    suite: str
    figure: str = ""
    shown: Shown = "as it is"

    @property
    def part(self) -> Part:
        """The part."""
        return Part(self.suite, self.figure, self.shown)


class AveragesEntry(_Entry):
    """What BiasAvg and UtilityAvg are made of."""

    bias: tuple[PartEntry, ...] = ()
    utility: tuple[PartEntry, ...] = ()

    @property
    def averaged(self) -> Averaged:
        """The parts."""
        return Averaged(tuple(entry.part for entry in self.bias), tuple(entry.part for entry in self.utility))


class ColumnEntry(_Entry):
    """A column: one figure of a suite, an average, an average rank, or what was read."""

    title: str
    suite: str = ""
    figure: str = ""
    part: str = ""
    shown: Shown = "as it is"
    average: Literal["", "bias", "utility"] = ""
    rank: Literal["", "bias", "utility", "quality", "long form"] = ""
    read: Literal["", "empty prompts", "empty steps", "toxic fallbacks", "certified share"] = ""
    method: str = ""
    against: str = ""
    change: Literal["difference", "percent"] = "difference"

    @property
    def kinds(self) -> int:
        """How many things it claims to show; an average, a rank and what was read exclude a figure."""
        return sum(map(bool, (self.average, self.rank, self.read, self.suite or self.figure or self.part)))


Number = float | str
"""A figure of the paper: a number, or one with its standard deviation, ``0.43±0.01``."""

_DEVIATED = re.compile(r"\s*(-?[\d.]+)\s*±\s*([\d.]+)\s*")


def number_of(figure: Number) -> tuple[float, float | None]:
    """A figure of the paper and its standard deviation."""
    if isinstance(figure, float):
        return figure, None
    found = _DEVIATED.fullmatch(figure)
    if found is None:
        raise ValueError(f"{figure!r} is no number and no number with a deviation, such as 0.43±0.01")
    return float(found[1]), float(found[2])


class PaperEntry(_Entry):
    """What the paper says of one model."""

    model: str
    source: str
    rows: dict[str, tuple[Number | None, ...]]

    @model_validator(mode="after")
    def _numbers(self) -> PaperEntry:
        for figures in self.rows.values():
            for figure in figures:
                if figure is not None:
                    number_of(figure)
        return self


class _Table(_Entry):
    """What all tables have."""

    title: str
    paper: tuple[PaperEntry, ...] = ()

    @property
    @abstractmethod
    def heads(self) -> tuple[str, ...]:
        """Heads of its columns."""

    @model_validator(mode="after")
    def _whole_rows(self) -> _Table:
        for entry in self.paper:
            for name, figures in entry.rows.items():
                if len(figures) != len(self.heads):
                    raise ValueError(
                        f"the row {name!r} of {entry.model} has {len(figures)} figures for {len(self.heads)} columns"
                    )
        return self


class MethodsTable(_Table):
    """A row a method."""

    kind: Literal["methods"]
    columns: tuple[ColumnEntry, ...] = Field(min_length=1)

    @property
    def heads(self) -> tuple[str, ...]:
        """Titles of its columns."""
        return tuple(column.title for column in self.columns)

    @model_validator(mode="after")
    def _columns_of_methods(self) -> MethodsTable:
        for column in self.columns:
            if column.kinds != 1 or column.method or ((column.figure or column.part) and not column.suite):
                raise ValueError(
                    f"the column {column.title!r} has to name a suite (with figure and part, if need be), an average, "
                    "a rank or what was read, one of them and no method"
                )
        return self


class SuitesTable(_Table):
    """A row a suite."""

    kind: Literal["suites"]
    suites: tuple[str, ...] = ()
    columns: tuple[ColumnEntry, ...] = Field(min_length=1)

    @property
    def heads(self) -> tuple[str, ...]:
        """Titles of its columns."""
        return tuple(column.title for column in self.columns)

    @model_validator(mode="after")
    def _columns_of_suites(self) -> SuitesTable:
        for column in self.columns:
            if not column.method or column.suite or column.average or column.rank:
                raise ValueError(f"the column {column.title!r} has to name a method, and no suite, average or rank")
        return self


class ChoiceTable(_Table):
    """A row a swept value: bias and utility on units of validation, and which value is chosen."""

    kind: Literal["choice"]

    @property
    def heads(self) -> tuple[str, ...]:
        """Its columns."""
        return ("BiasAvg", "UtilityAvg")


class OwnEntry(_Entry):
    """Bias and utility of one suite that stands by itself."""

    bias: PartEntry
    utility: PartEntry


class StabilityTable(_Table):
    """A row a suite: the value that is chosen by its bias alone, and their mean and deviation."""

    kind: Literal["stability"]
    own: tuple[OwnEntry, ...] = ()

    @property
    def heads(self) -> tuple[str, ...]:
        """Its column."""
        return ("Chosen",)


class CoverageTable(_Table):
    """A row a swept risk level: miscoverage on contexts kept apart, and the size of the certified sets."""

    kind: Literal["coverage"]

    @property
    def heads(self) -> tuple[str, ...]:
        """Its columns."""
        return ("Miscoverage", "Certified share")


class ChainsTable(_Table):
    """A row a length of chains and risk level: miscoverage of whole chains."""

    kind: Literal["chains"]
    method: str
    horizons: tuple[int, ...] = Field(min_length=1)
    alphas: tuple[float, ...] = Field(min_length=1)

    @property
    def heads(self) -> tuple[str, ...]:
        """Its columns."""
        return ("Miscoverage",)


class DriftSetting(_Entry):
    """Prompts that thresholds are held against; the gap is the suite's main figure."""

    title: str
    suite: str


class DriftTable(_Table):
    """A row a set of prompts: coverage of thresholds that were fitted on the first one."""

    kind: Literal["drift"]
    method: str
    settings: tuple[DriftSetting, ...] = Field(min_length=2)

    @property
    def heads(self) -> tuple[str, ...]:
        """Its columns."""
        return ("Coverage", "Density ratio", "Gap")


class SpeedTable(_Table):
    """Speed and memory, measured when the experiment is run."""

    kind: Literal["speed"]
    rows: Literal["methods", "lengths", "batches"] = "methods"
    methods: tuple[str, ...] = ()
    batches: tuple[int, ...] = (4,)
    lengths: tuple[int, ...] = (256,)
    prompt: Annotated[int, Field(ge=8)] = 64
    words: Annotated[int, Field(ge=1, le=4)] = 1
    repeats: Annotated[int, Field(ge=1)] = 5

    @property
    def heads(self) -> tuple[str, ...]:
        """Its columns: of methods speed, overhead and memory; else the speed of each method."""
        if self.rows == "methods":
            return ("Tokens a second", "Overhead, %", "Peak memory, GB")
        return (*self.methods, "Overhead, %")

    @model_validator(mode="after")
    def _one_of_the_others(self) -> SpeedTable:
        for name, values in (("batches", self.batches), ("lengths", self.lengths)):
            if len(values) < 1 or (self.rows != name and len(values) > 1):
                raise ValueError(f"{name} has {len(values)} values; give one unless the rows are {name}")
        if self.rows != "methods" and len(self.methods) != 2:
            raise ValueError(f"a table over {self.rows} compares two methods; name them in methods")
        if any(length <= self.prompt + 1 for length in self.lengths):
            raise ValueError(f"a length leaves no token to time beyond the prompt's {self.prompt}; make it longer")
        return self


TableEntry = Annotated[
    MethodsTable | SuitesTable | ChoiceTable | StabilityTable | CoverageTable | ChainsTable | DriftTable | SpeedTable,
    Field(discriminator="kind"),
]


class RunEntry(_Entry):
    """How the experiment is run, where nobody says otherwise."""

    seeds: tuple[int, ...] = (0, 1, 2)
    calibration_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9


class Experiment(_Entry):
    """A named experiment."""

    title: str
    source: str
    shows: str
    differs: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    instead: dict[str, str] = Field(default_factory=dict)
    methods: tuple[MethodEntry, ...] = ()
    sweep: SweepEntry | None = None
    averages: AveragesEntry = AveragesEntry()
    run: RunEntry = RunEntry()
    tables: tuple[TableEntry, ...] = Field(min_length=1)

    @property
    def specifications(self) -> tuple[str, ...]:
        """All methods as a command names them, those of the sweep last."""
        return (*(entry.method for entry in self.methods), *(self.sweep.methods if self.sweep else ()))

    @property
    def base(self) -> AuditSettings:
        """Settings that its methods share."""
        return AuditSettings(temperature=self.run.temperature, top_p=self.run.top_p)

    @property
    def reads(self) -> bool:
        """Whether it reads suites; one that measures speed alone does not."""
        return bool(self.suites)

    def evaluated(self) -> tuple[EvaluationMethod, ...]:
        """Its methods."""
        return methods_from(self.specifications, self.base)


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """What of an experiment can be run here."""

    experiment: Experiment
    request: EvaluationRequest
    suites: Mapping[str, str]

    @property
    def methods(self) -> tuple[EvaluationMethod, ...]:
        """The methods that take part."""
        return self.request.methods

    @property
    def model(self) -> str:
        """The model."""
        return self.request.model

    @property
    def left_out(self) -> tuple[str, ...]:
        """What takes no part, and why, a sentence each."""
        return () if self.request.experiment is None else self.request.experiment.left_out
