"""What an evaluation is asked, from JSON and from the options of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import typer

from app.evaluate.experiments.service import ExperimentRequest, ExperimentService
from app.evaluate.methods import method_from, methods_from, suites_from
from app.evaluate.runs import EvaluationMethod, EvaluationRequest
from app.evaluate.service import EvaluationService
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.operations import Json, checked, record
from app.shared.settings_json import settings_from_json
from app.shared.terminal import pairs
from app.shared.wiring import Services
from coft_core.suites.base import Encoding

USUAL = EvaluationRequest("", (), ())


def evaluation_request(wired: Services, given: Json) -> EvaluationRequest:
    """The request of an evaluation, or of an experiment, from JSON with the short names that a command has.

    Raises:
        ServiceError: There is no such setting, suite, set, method or experiment, or one cannot take its value.
        ModelLoadError: The model of an experiment cannot be loaded.
    """
    texts = {name: checked(f"The setting {name}", dict[str, str], given.get(name, {})) for name in ("judges", "given")}
    if given.get("experiment"):
        refuse_beside_experiment([name for name in ("suites", "methods") if name in given])
        named = {name: value for name, value in given.items() if name not in texts}
        judges, needs = (tuple(told.items()) for told in texts.values())
        asked = record(ExperimentRequest, named, others=tuple(texts), model=wired.settings.model)
        return wired[ExperimentService].request(replace(asked, judges=judges, given=needs))
    named = {name: value for name, value in given.items() if name not in ("suites", "methods", "judges", "experiment")}
    suites = checked("The setting suites", list[str], given.get("suites", []))
    return record(
        EvaluationRequest,
        named,
        others=("judges",),
        name="",
        suites=suites_from(suites, wired[EvaluationService].known_suites()),
        methods=_methods(given.get("methods", [])),
        model=wired.settings.model,
        judges=tuple(texts["judges"].items()),
    )


def refuse_beside_experiment(told: Sequence[str]) -> None:
    """Refuse what an experiment says itself."""
    if told:
        raise ServiceError(f"An experiment has its own suites, methods and settings; leave {' and '.join(told)} out.")


def _methods(given: Any) -> tuple[EvaluationMethod, ...]:
    if not isinstance(given, (list, tuple)):
        raise ServiceError('The setting methods must be a list, such as ["vanilla", "coft:calibrated"].')
    base = AuditSettings()
    listed: list[EvaluationMethod] = []
    for item in given:
        listed += methods_from((item,), base) if isinstance(item, str) else [_method(item)]
    return tuple(dict.fromkeys(listed))


def _method(given: Any) -> EvaluationMethod:
    """A method that is described by its settings."""
    if isinstance(given, EvaluationMethod):
        return given
    if not isinstance(given, dict):
        raise ServiceError(f"A method must be a short name or an object with label and settings, not {given!r:.80}.")
    rest = {name: value for name, value in given.items() if name != "settings"}
    return record(EvaluationMethod, rest, "method's field", settings=settings_from_json(given.get("settings")))


@dataclass(frozen=True, kw_only=True)
class EstimateOptions:
    """What a terminal asks for.

    Attributes:
        suite: suites by key, as 'evaluations suites' lists them, or sets of them; may be given several times
        method: a method as 'policies' lists it, with options, such as coft:calibrated,lam=0.4; LABEL=NAME labels it,
            and 'evaluations sets' lists names that stand for several; may be given several times (default: table1)
        model: 'demo', a hub id, or a folder (default: COFT_MODEL)
        seeds: seeds of the runs; each has its own calibration share (default: 0,1,2)
        limit: whole units of each suite are drawn until there are so many items
        data: folder with the suites' files (default: COFT_DATA)
        judges: what judges written texts, e.g. toxicity=embedded,sentiment=FOLDER
        experiment: a named experiment, as 'evaluations experiments' lists them; it has its
            own suites and methods, and its tables are printed with the paper's figures beside ours
        given: what methods of an experiment need, such as cda.checkpoint=FOLDER
        share: share of the items on which thresholds are fitted, of an experiment's at least; those are not evaluated
    """

    suite: Annotated[list[str] | None, typer.Option("--suite", "--suites", metavar="NAME[,NAME]")] = None
    method: Annotated[list[str] | None, typer.Option("--method", metavar="NAME[:OPTION,OPTION]")] = None
    model: str = ""
    seeds: Annotated[str, typer.Option("--seeds", "--seed", metavar="SEED[,SEED]")] = ""
    limit: int | None = None
    data: str = ""
    judges: Annotated[str | None, typer.Option("--judges", metavar="NAME=SOURCE,...")] = None
    experiment: Annotated[str, typer.Option("--experiment", metavar="NAME|FILE")] = ""
    given: Annotated[str | None, typer.Option("--set", metavar="POLICY.PARAMETER=VALUE,...")] = None
    share: float = USUAL.calibration_share

    def asked(self, wired: Services) -> EvaluationRequest:
        """What is asked for."""
        told: Json = {
            "model": self.model,
            "seeds": [part.strip() for part in self.seeds.split(",") if part.strip()],
            "limit": self.limit,
            "data": self.data,
            "judges": pairs("--judges", self.judges),
            "calibration_share": self.share,
        }
        if self.experiment:
            refuse_beside_experiment(self._beside_experiment())
            told |= {"experiment": self.experiment, "given": pairs("--set", self.given)}
        elif self.given is not None:
            raise ServiceError("--set gives what an experiment's methods need; name it with --experiment.")
        else:
            told |= self._own()
        return evaluation_request(
            wired, {name: value for name, value in told.items() if value not in (None, "", [], ())}
        )

    def _own(self) -> Json:
        """What an experiment says itself."""
        return {"suites": self.suite, "methods": methods_from(self.method or ["table1"], AuditSettings())}

    def _beside_experiment(self) -> list[str]:
        """Options that were given and that an experiment says itself."""
        shared, usual = ("model", "seeds", "limit", "data", "judges", "experiment", "given", "share"), type(self)()
        own = [item.name for item in fields(self) if item.name not in shared]
        return [f"--{name.replace('_', '-')}" for name in own if getattr(self, name) != getattr(usual, name)]


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(EstimateOptions):
    """What a terminal asks to be run.

    Attributes:
        policies: methods without options, labelled by their names
        name: name of the evaluation (default: its suites)
        temperature: sampling temperature of all methods
        top_p: nucleus mass of all methods; 1 is off
        top_k: 0 is off
        encoding: whether given texts are tokenized together with their prompts, as in lm-evaluation-harness, or apart
            where a token would reach over the border
    """

    policies: Annotated[str, typer.Option("--policies", "--policy", metavar="NAME[,NAME]")] = ""
    name: str = ""
    temperature: float = AuditSettings().temperature
    top_p: float = AuditSettings().top_p
    top_k: int = AuditSettings().top_k
    encoding: Encoding = USUAL.encoding

    def _own(self) -> Json:
        base = replace(AuditSettings(), temperature=self.temperature, top_p=self.top_p, top_k=self.top_k)
        plain = [part.strip() for part in self.policies.split(",") if part.strip()]
        labelled = [replace(method_from(part, base), label=part) for part in plain]
        listed = self.method or ([] if plain else ["table1"])
        return {
            "name": self.name,
            "suites": self.suite,
            "methods": [*labelled, *methods_from(listed, base)],
            "encoding": self.encoding,
        }
