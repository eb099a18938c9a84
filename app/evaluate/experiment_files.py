"""Reading experiments from YAML; what is wrong is named with its file and field."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from app.evaluate.experiments import (
    ChainsTable,
    ChoiceTable,
    CoverageTable,
    DriftTable,
    Experiment,
    MethodsTable,
    PartEntry,
    SpeedTable,
    StabilityTable,
    SuitesTable,
)
from app.evaluate.methods import methods_from
from app.evaluate.runs import EvaluationMethod
from app.shared.errors import ServiceError
from app.shared.policies import policy_info
from coft_core.assets import assets_path
from coft_core.suites.registry import SUITES

FOLDER = ("experiments",)
ENDINGS = (".yaml", ".yml")


def experiment_names() -> tuple[str, ...]:
    """Names of the shipped experiments."""
    return tuple(sorted(path.stem for path in assets_path(*FOLDER).glob("*.yaml")))


def load_experiment(name: str) -> Experiment:
    """An experiment by its name, or by the path of a YAML file."""
    if name.endswith(ENDINGS) or "/" in name:
        # Path raises where a name is too long for a path or names the home of nobody.
        path = Path(os.path.expanduser(name))
        if not os.path.isfile(path):
            raise ServiceError(f"There is no file {name:.80}; give the path of a YAML file, or a name that is listed.")
        return read_experiment(path)
    if name not in experiment_names():
        raise ServiceError(
            f"There is no experiment {name!r}; choose one of {', '.join(experiment_names())}, or give the path of a "
            "YAML file."
        )
    return _shipped(name)


@cache
def _shipped(name: str) -> Experiment:
    return read_experiment(assets_path(*FOLDER, f"{name}.yaml"))


def read_experiment(path: Path) -> Experiment:
    """Read and check an experiment."""
    try:
        text = path.read_text("utf-8")
        content = yaml.load(text, _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceError(f"{path.name} cannot be read ({error}); give another file.") from error
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise ServiceError(f"{path.name}{line}: this is no YAML ({error.problem}); correct it.") from error
    except yaml.YAMLError as error:
        raise ServiceError(f"{path.name} is no YAML ({error}); correct it.") from error
    if not isinstance(content, dict):
        raise ServiceError(f"{path.name} has no fields; begin with title, source, shows and tables.")
    try:
        experiment = Experiment.model_validate(content)
    except ValidationError as error:
        raise ServiceError(_first(path.name, text, error)) from error
    _check(path.name, text, experiment)
    return experiment


def _first(name: str, text: str, error: ValidationError) -> str:
    """The first thing that is wrong, as a sentence."""
    first = error.errors(include_url=False)[0]
    # A discriminated union puts the name of its kind between the places of the file.
    kinds = {"methods", "suites", "choice", "stability", "coverage", "chains", "drift", "speed"}
    places = first["loc"]
    named = [
        str(part) for place, part in enumerate(places) if not (part in kinds and place == 2 and places[0] == "tables")
    ]
    reason = first["msg"].removeprefix("Value error, ")
    field = ".".join(part for part in named if part not in ("float", "str"))
    where = f"the field {field}" if field else "the whole"
    more = "" if error.error_count() == 1 else f" ({error.error_count() - 1} more)"
    return f"{name}, line {_line(text, named)}: {where} is wrong: {reason[:1].lower()}{reason[1:]}; correct it{more}."


def _line(text: str, places: Sequence[str]) -> int:
    """The line of a field, counted from 1; of one that is not there, that of what it should stand in."""
    node = yaml.compose(text, _Loader)
    line = 1
    for place in places:
        if isinstance(node, yaml.MappingNode):
            key, node = next(((key, value) for key, value in node.value if key.value == place), (None, None))
        else:
            listed = node.value if isinstance(node, yaml.SequenceNode) else []
            key = node = listed[int(place)] if place.isdigit() and int(place) < len(listed) else None
        if key is None:
            break
        line = key.start_mark.line + 1
    return line


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a field that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {key.value!r} stands twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


# Names that have to exist.


def _check(name: str, text: str, experiment: Experiment) -> None:
    """Refuse suites and methods that there are not."""

    def refuse(field: str, reason: str) -> None:
        line = _line(text, field.split("."))
        raise ServiceError(f"{name}, line {line}: the field {field} is wrong: {reason}; correct it.")

    known = [suite.key for suite in SUITES]
    for field, key in _suite_fields(experiment):
        if key not in known:
            refuse(field, f"there is no suite {key!r}; the suites are {', '.join(known)}")
    own = {*experiment.suites, *experiment.instead.values()}
    for field, key in _suite_fields(experiment):
        if key not in own:
            refuse(field, f"{key!r} is not among the suites of the experiment")
    for field, texts in (
        *((f"methods.{place}.method", (entry.method,)) for place, entry in enumerate(experiment.methods)),
        ("methods", experiment.specifications),
    ):
        try:
            methods = methods_from(texts, experiment.base)
        except ServiceError as error:
            refuse(field, str(error).rstrip(".")[:1].lower() + str(error).rstrip(".")[1:])
    labels = [method.label for method in methods]
    for field, label in _method_fields(experiment):
        if label not in labels:
            refuse(field, f"there is no method {label!r}; the methods are {', '.join(labels)}")
    _check_parameters(experiment, methods, refuse)
    _check_needed(experiment, refuse)


def _suite_fields(experiment: Experiment) -> list[tuple[str, str]]:
    found = [(f"suites.{place}", key) for place, key in enumerate(experiment.suites)]
    found += [(f"instead.{key}", other) for key, other in experiment.instead.items()]
    for kind in ("bias", "utility"):
        parts: Sequence[PartEntry] = getattr(experiment.averages, kind)
        found += [(f"averages.{kind}.{place}.suite", part.suite) for place, part in enumerate(parts)]
    for number, table in enumerate(experiment.tables):
        field = f"tables.{number}"
        if isinstance(table, MethodsTable):
            found += [
                (f"{field}.columns.{place}.suite", column.suite)
                for place, column in enumerate(table.columns)
                if column.suite
            ]
        elif isinstance(table, SuitesTable):
            found += [(f"{field}.suites.{place}", key) for place, key in enumerate(table.suites)]
        elif isinstance(table, DriftTable):
            found += [(f"{field}.settings.{place}.suite", own.suite) for place, own in enumerate(table.settings)]
        elif isinstance(table, StabilityTable):
            for place, entry in enumerate(table.own):
                for name, part in (("bias", entry.bias), ("utility", entry.utility)):
                    found.append((f"{field}.own.{place}.{name}.suite", part.suite))
    return found


def _method_fields(experiment: Experiment) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for number, table in enumerate(experiment.tables):
        field = f"tables.{number}"
        if isinstance(table, MethodsTable | SuitesTable):
            for place, column in enumerate(table.columns):
                for name in ("method", "against"):
                    found += [(f"{field}.columns.{place}.{name}", label)] if (label := getattr(column, name)) else []
        elif isinstance(table, ChainsTable | DriftTable):
            found.append((f"{field}.method", table.method))
        elif isinstance(table, SpeedTable):
            found += [(f"{field}.methods.{place}", label) for place, label in enumerate(table.methods)]
    return found


def _check_parameters(experiment: Experiment, methods: Sequence[EvaluationMethod], refuse: Any) -> None:
    """What is to be given has to be a parameter of its policy."""
    for place, (entry, method) in enumerate(zip(experiment.methods, methods, strict=False)):
        known = _parameters(method)
        for parameter in entry.needs:
            if parameter not in known:
                refuse(f"methods.{place}.needs", f"{method.settings.policy} has no parameter {parameter!r}")


def _parameters(method: EvaluationMethod) -> tuple[str, ...]:
    """Names of the parameters of a method's policy."""
    return tuple(parameter.name for parameter in policy_info(method.settings.policy).parameters)


def _check_needed(experiment: Experiment, refuse: Any) -> None:
    """Tables need what they are made of."""
    for number, table in enumerate(experiment.tables):
        field = f"tables.{number}"
        if isinstance(table, ChoiceTable | StabilityTable | CoverageTable) and experiment.sweep is None:
            refuse(field, f"a table of kind {table.kind} needs the field sweep")
        if isinstance(table, CoverageTable) and experiment.sweep and experiment.sweep.knob != "alpha":
            refuse(field, "coverage is shown against alpha; sweep it")
        averaged = experiment.averages
        if isinstance(table, ChoiceTable | StabilityTable) and not (averaged.bias and averaged.utility):
            refuse(field, "a choice needs the fields averages.bias and averages.utility")
        if isinstance(table, MethodsTable):
            for place, column in enumerate(table.columns):
                if column.average and not getattr(averaged, column.average):
                    refuse(f"{field}.columns.{place}.average", f"the field averages.{column.average} is empty")


def given_parameters(given: Mapping[str, str], methods: Sequence[EvaluationMethod]) -> dict[str, dict[str, str]]:
    """Parameters that somebody gives for methods of an experiment, by policy."""
    by_policy: dict[str, dict[str, str]] = {}
    for name, value in given.items():
        policy, dot, parameter = name.partition(".")
        known = {method.settings.policy: _parameters(method) for method in methods}
        if not dot or policy not in known or parameter not in known[policy]:
            raise ServiceError(
                f"No method of this experiment has {name!r}; write policy.parameter, such as cda.checkpoint=FOLDER; "
                f"its policies are {', '.join(known)}."
            )
        by_policy.setdefault(policy, {})[parameter] = value
    return by_policy
