"""Runs the experiments of the paper one after the other; a folder remembers which evaluations are its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.experiments.service import ExperimentRequest, ExperimentService
from app.evaluate.experiments.speed import speed_tables
from app.evaluate.runs import EvaluationMethod, EvaluationRequest, EvaluationView, too_small
from app.evaluate.service import EvaluationService
from app.paper.items import EXAMPLES, paper_experiments
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.files import write_text
from coft_core.errors import CoftError
from coft_core.model.load import MIXTURE
from db.types import NotFoundError

STATE = "paper.json"

EXPERTS, NAMED_SO = "moe", re.compile("mixtral|moe", re.IGNORECASE)
"""The experiment of a mixture of experts, what such models are called, and the one that stands in for them."""

Wait = Callable[[EvaluationView], None]
"""Waits for a running evaluation, and raises ServiceError if it fails."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What all evaluations of a folder share."""

    data: str = ""
    limit: int | None = None
    seeds: tuple[int, ...] | None = None
    judges: tuple[tuple[str, str], ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    calibration_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Folder:
    """What is known of a folder: evaluations and their expected seconds, by model and experiment."""

    asked: Asked
    runs: dict[str, dict[str, int]] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)


_FOLDER = TypeAdapter(Folder)


@dataclass(frozen=True, slots=True)
class Part:
    """One experiment on one model, with its evaluation, what it is expected to take, or why it is skipped."""

    experiment: str
    model: str
    evaluation: int | None = None
    seconds: float | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()


class PaperRun:
    """The evaluations of a folder."""

    def __init__(
        self, evaluations: EvaluationService, experiments: ExperimentService, out: Path, asked: Asked,
        models: Sequence[str], only: Sequence[str], stored: Sequence[int],
    ) -> None:  # fmt: skip
        """Read the folder again; one that was begun with other options is refused."""
        self._evaluations, self._experiments, self._path = evaluations, experiments, out / STATE
        self.out, self.models, self.only = out, tuple(dict.fromkeys(models)), tuple(only)
        self._folder = self._begun(asked)
        self._stored = self._of_other_days(stored)
        self._read: set[tuple[object, ...]] = set()
        self._costs: dict[tuple[object, ...], float] = {}
        self._warned: set[str] = set()

    @property
    def is_new(self) -> bool:
        """Whether nothing of it has been run."""
        return not self._folder.runs

    def parts(self) -> list[Part]:
        """What is made, model after model, in the order of the paper; stored runs of other models come last."""
        names = [name for name in paper_experiments(self.only) if name != EXAMPLES]
        listed = [(name, model) for model in self.models for name in names if name != EXPERTS]
        if EXPERTS in names and self.models:
            listed += [(EXPERTS, model) for model in self.models if NAMED_SO.search(model)] or [(EXPERTS, MIXTURE)]
        listed += [(name, model) for model, runs in self._stored.items() for name in names if name in runs]
        kept = {model: {**runs, **self._stored.get(model, {})} for model, runs in self._folder.runs.items()}
        known = self._stored | kept
        return [Part(name, model, known.get(model, {}).get(name)) for name, model in dict.fromkeys(listed)]

    def planned(self) -> Iterator[Part]:
        """The same with what each will take; loads the models of what is not begun."""
        for part in self.parts():
            kept = self._folder.seconds.get(part.model, {}).get(part.experiment)
            if part.evaluation is not None:
                view = self._view(part.evaluation)
                left = 1 - view.done / view.planned if view.planned else float(view.left)
                yield replace(part, seconds=(kept or 0.0) * left)
            elif part.experiment not in EXPERIMENTS:
                yield replace(part, reason="This version has no such experiment.")
            elif kept is not None:
                yield replace(part, seconds=kept)
            else:
                yield self._estimated(part)

    def run(self, wait: Wait, tell: Tell) -> list[Part]:
        """Run what is not done, and say what is skipped and why; what fails is tried again the next time."""
        done, listed = [], self.parts()
        for number, part in enumerate(listed, start=1):
            tell(f"{number} of {len(listed)}: {part.experiment}, {part.model}")
            done.append(self._run(part, wait))
            if done[-1].reason:
                tell(f"  skipped: {done[-1].reason}")
        return done

    def _run(self, part: Part, wait: Wait) -> Part:
        if part.experiment not in EXPERIMENTS:
            return replace(part, reason="This version has no such experiment.")
        if part.evaluation is not None and part.evaluation in self._stored.get(part.model, {}).values():
            view = self._view(part.evaluation)
            told = f"Evaluation {view.id} is not finished: {view.done:,} of {view.planned:,} items are done."
            return replace(part, notes=(told,) if view.left else ())
        if (number := part.evaluation) is None:
            try:
                number = self._evaluations.submit(self._request(part))
            except (ServiceError, CoftError) as error:
                return replace(part, reason=str(error))
            self._folder.runs.setdefault(part.model, {})[part.experiment] = number
            self._keep()
        elif self._view(number).resumable:
            self._evaluations.resume(number)
        part = replace(part, evaluation=number)
        view = self._view(number)
        if not (view.running or view.left):
            return part
        try:
            wait(view)
        except ServiceError as error:
            return replace(part, reason=str(error))
        return part

    # What is asked.

    def _request(self, part: Part) -> EvaluationRequest:
        asked, experiment = self._folder.asked, EXPERIMENTS[part.experiment]
        policies = {method.settings.policy for method in experiment.evaluated()}
        given = tuple((name, value) for name, value in asked.given if name.partition(".")[0] in policies)
        told = {name: getattr(asked, name) for name in ("limit", "seeds", "data", "judges", "calibration_share")}
        return self._experiments.request(ExperimentRequest(part.experiment, part.model, given=given, **told))

    def _estimated(self, part: Part) -> Part:
        """An estimate by a trial of each suite with each kind of method, without what an earlier part reads already."""
        try:
            request = self._request(part)
            warnings = self._try(request)
        except (ServiceError, CoftError) as error:
            return replace(part, reason=str(error))
        share = request.calibration_share if request.calibrates else 0.0
        read = {
            (request.model, suite, share, replace(m, label="")): m for suite in request.suites for m in request.methods
        }
        seconds = sum(self._costs.get((*key[:2], _kind(m)), 0.0) for key, m in read.items() if key not in self._read)
        self._read |= set(read)
        self._folder.seconds.setdefault(part.model, {})[part.experiment] = seconds
        self._keep()
        labels = [method.label for method in request.methods]
        timed = tuple(own.planned(labels) for own in speed_tables(EXPERIMENTS[part.experiment]).values())
        return replace(part, seconds=seconds, notes=(*warnings, *timed))

    def _try(self, request: EvaluationRequest) -> list[str]:
        """Try each suite with one method of each kind that was not tried on it; return what was not said before."""
        said: list[str] = []
        kinds = {_kind(method): method for method in reversed(request.methods)}
        untried: dict[tuple[EvaluationMethod, ...], list[str]] = {}
        for suite in request.suites:
            new = tuple(m for kind, m in kinds.items() if (request.model, suite, kind) not in self._costs)
            untried.setdefault(new, []).append(suite)
        for methods, suites in untried.items():
            if methods:
                asked = replace(request, suites=tuple(suites), methods=methods, experiment=None)
                estimate = self._evaluations.estimate(asked)
                small = [own for own in estimate.suites if own.too_small not in self._warned]
                said += [own for own in (*estimate.missing, *too_small(small)) if own not in self._warned]
                self._warned |= {*said, *(own.too_small for own in small)}
                for found in estimate.suites:
                    each = found.seconds / len(methods)
                    self._costs |= {(request.model, found.suite, _kind(m)): each for m in methods}
        return said

    # What is kept.

    def _begun(self, asked: Asked) -> Folder:
        policies = {m.settings.policy for own in EXPERIMENTS.values() for m in own.evaluated()}
        if unknown := [name for name, _ in asked.given if name.partition(".")[0] not in policies]:
            raise ServiceError(f"No method of the paper has {unknown[0]!r}; write policy.parameter=value.")
        if not self._path.exists():
            return Folder(asked)
        try:
            found = _FOLDER.validate_json(self._path.read_text("utf-8"))
        except (ValidationError, OSError) as error:
            raise ServiceError(f"{self._path} cannot be read; remove it, or take another folder.") from error
        before, now = asdict(found.asked), asdict(asked)
        if changed := [name for name in now if before[name] != now[name]]:
            raise ServiceError(
                f"{self._path.parent} was begun with another {' and '.join(changed)}; give the same options, or take "
                "another folder."
            )
        return found

    def _of_other_days(self, numbers: Sequence[int]) -> dict[str, dict[str, int]]:
        """Stored evaluations by model and experiment."""
        found: dict[str, dict[str, int]] = {}
        for number in numbers:
            request = self._view(number).request
            if request.experiment is None or request.experiment.name not in EXPERIMENTS:
                raise ServiceError(f"Evaluation {number} is of no experiment of the paper; leave it out.")
            of_model = found.setdefault(request.model, {})
            name = request.experiment.name
            if of_model.setdefault(name, number) != number:
                raise ServiceError(
                    f"Evaluations {of_model[name]} and {number} are both of {name} on {request.model}; name one."
                )
        return found

    def _view(self, number: int) -> EvaluationView:
        try:
            return self._evaluations.view(number)
        except NotFoundError as error:
            raise ServiceError(
                f"The store has no evaluation {number}; open the store that it was made in (COFT_DATABASE_URL), or "
                "take another folder."
            ) from error

    def _keep(self) -> None:
        write_text(self._path, _FOLDER.dump_json(self._folder, indent=1).decode())


def _kind(method: EvaluationMethod) -> EvaluationMethod:
    """What a method's cost depends on: neither lambda nor alpha."""
    usual = AuditSettings()
    return replace(method, label="", settings=replace(method.settings, lam=usual.lam, alpha=usual.alpha))
