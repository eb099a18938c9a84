"""Coefficients of the mixed-effects model of DiscrimEval, which are fitted on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from app.evaluate import words
from app.evaluate.layout import Head, Layout, Shown
from app.evaluate.runs import EvaluationView
from app.evaluate.service import EvaluationService
from app.shared.errors import ServiceError
from app.shared.operations import Progress
from app.shared.project_cache import ProjectCache
from app.shared.wiring import Services
from coft_core.suites.base import Figure, Outside
from coft_core.suites.discrim_eval import DiscrimEval, mixed_effects

FITS_KEPT = 64
"""Fitted models that are kept, each of one method on one suite."""


@dataclass(frozen=True, slots=True)
class CoefficientRequest:
    """Which coefficients are asked for."""

    evaluation_id: int
    suite: str = ""
    outside: Outside = "floor"


@dataclass(frozen=True, slots=True)
class MethodCoefficients:
    """The coefficients of one method."""

    method: str
    figures: tuple[Figure, ...]

    @property
    def fitted(self) -> bool:
        """Whether the model could be fitted."""
        return any(figure.value is not None for figure in self.figures)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The coefficients of an evaluation's methods on a suite."""

    evaluation_id: int
    suite: str
    title: str
    outside: Outside
    methods: tuple[MethodCoefficients, ...]

    @property
    def notes(self) -> list[str]:
        """What has to be said with them."""
        said = [
            "Change of the log-odds of yes against white persons, against men, and for each standard deviation of age; "
            "0 is no discrimination. Questions have their own intercept and slopes (Tamkin et al. 2023); intervals are "
            "Wald's. Decisions that were read under several seeds count once, with the mean of their log-odds."
        ]
        failed = [own.method for own in self.methods if not own.fitted]
        if failed:
            said.append(
                f"The model could not be fitted for {', '.join(failed)}: it needs at least two questions and persons "
                "of every race, gender and age, and one of its two optimisers has to converge; evaluate more items."
            )
        return said


def coefficients_laid_out(found: Coefficients) -> Layout:
    """A row a coefficient, a column a method."""
    values = [figure.value for own in found.methods for figure in own.figures]
    digits = words.digits_for(values)
    parts = [figure.part for figure in found.methods[0].figures]
    lines = tuple((Head(part), tuple(_shown(own, part, digits) for own in found.methods)) for part in parts)
    return Layout("Coefficient", tuple(Head(own.method) for own in found.methods), lines)


def _shown(own: MethodCoefficients, part: str, digits: int) -> Shown | None:
    figure = next(figure for figure in own.figures if figure.part == part)
    if figure.value is None:
        return None
    said = f"{figure.n:,} decisions" + (f", {figure.unscored:,} unscored" if figure.unscored else "")
    interval = words.interval(figure.low, figure.high, digits)
    return Shown(words.number(figure.value, digits), interval=interval, value=figure.value, said=said)


class CoefficientService:
    """Fits mixed-effects models to what evaluations have kept; none is fitted again before something was added."""

    def __init__(self, evaluations: EvaluationService) -> None:
        """Nothing is fitted yet."""
        self._evaluations = evaluations
        self._fits: ProjectCache[tuple[object, ...], tuple[Figure, ...]] = ProjectCache(FITS_KEPT)
        self._fitting = Lock()

    @classmethod
    def wired(cls, services: Services) -> CoefficientService:
        """Built from the program's services."""
        return cls(services[EvaluationService])

    def suites(self, view: EvaluationView) -> tuple[DiscrimEval, ...]:
        """The suites of an evaluation that have such a model."""
        known = self._evaluations.known_suites()
        return tuple(
            suite for suite in known if isinstance(suite, DiscrimEval) and suite.key in view.request.suites
        )  # fmt: skip

    def coefficients(self, request: CoefficientRequest, progress: Progress | None = None) -> Coefficients:
        """The coefficients of every method of which something is done."""
        view, suite, labels = self._asked(request)
        fits = []
        for place, label in enumerate(labels):
            fits.append(MethodCoefficients(label, self._fit(view, suite, label, request.outside)))
            if progress is not None:
                progress((place + 1) / len(labels), f"fitted the model of {label}")
        return Coefficients(view.id, suite.key, suite.title, request.outside, tuple(fits))

    def fitting(self, request: CoefficientRequest) -> Iterator[tuple[int, int, str]]:
        """Fit method after method; the coefficients are then there at once."""
        view, suite, labels = self._asked(request)
        for place, label in enumerate(labels):
            yield place, len(labels), label
            self._fit(view, suite, label, request.outside)

    def _asked(self, request: CoefficientRequest) -> tuple[EvaluationView, DiscrimEval, Sequence[str]]:
        view = self._evaluations.view(request.evaluation_id)
        suite = self._suite(view, request.suite)
        done = self._evaluations.suite_outcomes(view.id, suite.key)
        read = {label for label, outcomes in done.items() if any(not outcome.unread for outcome in outcomes)}
        labels = [method.label for method in view.request.methods if method.label in read]
        if not labels:
            raise ServiceError(f"No item of {suite.title} is read yet; wait until some are, or resume the run.")
        return view, suite, labels

    def _suite(self, view: EvaluationView, key: str) -> DiscrimEval:
        own = self.suites(view)
        if not own:
            raise ServiceError(
                "This evaluation has no suite of DiscrimEval, whose coefficients these are; evaluate "
                "discrim_eval_explicit or discrim_eval_implicit."
            )
        keys = [suite.key for suite in own]
        if not key and len(own) > 1:
            raise ServiceError(f"This evaluation has several suites of DiscrimEval; name one of {', '.join(keys)}.")
        if key and key not in keys:
            raise ServiceError(f"The suite {key!r} has no mixed-effects model here; choose {' or '.join(keys)}.")
        return own[keys.index(key) if key else 0]

    def _fit(self, view: EvaluationView, suite: DiscrimEval, label: str, outside: Outside) -> tuple[Figure, ...]:
        outcomes = self._evaluations.outcomes(view.id, suite.key, label)
        key = view.id, suite.key, label, outside, len(outcomes)
        # Two that fit the same at once would only wait for each other.
        with self._fitting:
            if key not in self._fits:
                read = [outcome for outcome in outcomes if not outcome.unread]
                self._fits[key] = tuple(mixed_effects(read, outside))
            return self._fits[key]
