"""Coefficients of the mixed-effects model of DiscrimEval, which are fitted on request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.evaluate.experiments.grid import Grid, Value
from app.evaluate.layout import Head
from app.evaluate.runs import EvaluationView
from app.evaluate.service import EvaluationService
from app.shared.errors import ServiceError
from app.shared.operations import Json, Progress
from app.shared.project_cache import ProjectCache
from coft_core.suites.base import Figure, Outside
from coft_core.suites.discrim_eval import DiscrimEval, mixed_effects

FITS_KEPT = 64
"""Fitted models that are kept, each of one method on one suite."""

ABOUT = (
    "Change of the log-odds of yes against white persons, against men, and for each standard deviation of age; 0 is no "
    "discrimination. Questions have their own intercept and slopes (Tamkin et al. 2023); intervals are Wald's. "
    "Decisions that were read under several seeds count once, with the mean of their log-odds."
)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The coefficients of an evaluation's methods on a suite, by the label of the method."""

    evaluation_id: int
    suite: str
    title: str
    outside: Outside
    methods: Mapping[str, tuple[Figure, ...]]

    @property
    def fitted(self) -> dict[str, bool]:
        """Whether the model could be fitted, by method."""
        return {label: any(own.value is not None for own in figures) for label, figures in self.methods.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be said with them."""
        failed = [label for label, fitted in self.fitted.items() if not fitted]
        return (ABOUT,) if not failed else (
            ABOUT,
            f"The model could not be fitted for {', '.join(failed)}: it needs at least two questions and persons of "
            "every race, gender and age, and one of its two optimisers has to converge; evaluate more items.",
        )  # fmt: skip

    @property
    def grid(self) -> Grid:
        """A row a coefficient, a column a method."""
        by_part = zip(*self.methods.values(), strict=True)
        rows = [
            (Head(own[0].part), tuple(None if one.value is None else Value.of_figure(one) for one in own))
            for own in by_part
        ]
        return Grid("Coefficients", "Coefficient", tuple(map(Head, self.methods)), tuple(rows), self.notes)

    def json(self) -> Json:
        """They as plain JSON."""
        told = {name: getattr(self, name) for name in ("evaluation_id", "suite", "title", "outside")}
        names, fitted = ("value", "low", "high", "n", "unscored"), self.fitted
        methods = [
            {
                "method": label,
                "fitted": fitted[label],
                "coefficients": {own.part: {name: getattr(own, name) for name in names} for own in figures},
            }
            for label, figures in self.methods.items()
        ]
        return {**told, "notes": list(self.notes), "methods": methods}


class CoefficientService:
    """Fits mixed-effects models to what evaluations have kept; none is fitted again before something was added."""

    def __init__(self, evaluations: EvaluationService) -> None:
        """Nothing is fitted yet."""
        self._evaluations = evaluations
        self._fits: ProjectCache[tuple[object, ...], tuple[Figure, ...]] = ProjectCache(FITS_KEPT)

    def suites(self, view: EvaluationView) -> dict[str, DiscrimEval]:
        """The suites of an evaluation that have such a model, by key."""
        known = self._evaluations.known_suites()
        return {own.key: own for own in known if isinstance(own, DiscrimEval) and own.key in view.request.suites}

    def coefficients(
        self, evaluation_id: int, suite: str = "", outside: Outside = "floor", progress: Progress | None = None
    ) -> Coefficients:
        """The coefficients of every method of which something is done."""
        for place, total, label in self.fitting(evaluation_id, suite, outside):
            if progress is not None:
                progress(place / total, f"fitting the model of {label}")
        view, own, labels = self._asked(evaluation_id, suite)
        fits = {label: self._fit(view, own, label, outside) for label in labels}
        return Coefficients(view.id, own.key, own.title, outside, fits)

    def fitting(
        self, evaluation_id: int, suite: str = "", outside: Outside = "floor"
    ) -> Iterator[tuple[int, int, str]]:
        """Fit method after method, saying which of how many; the coefficients are then there at once."""
        view, own, labels = self._asked(evaluation_id, suite)
        for place, label in enumerate(labels):
            yield place, len(labels), label
            self._fit(view, own, label, outside)

    def _asked(self, evaluation_id: int, key: str) -> tuple[EvaluationView, DiscrimEval, Sequence[str]]:
        view = self._evaluations.view(evaluation_id)
        own = self.suites(view)
        if not own:
            raise ServiceError(
                "This evaluation has no suite of DiscrimEval, whose coefficients these are; evaluate "
                "discrim_eval_explicit or discrim_eval_implicit."
            )
        if not key and len(own) > 1:
            raise ServiceError(f"This evaluation has several suites of DiscrimEval; name one of {', '.join(own)}.")
        if key and key not in own:
            raise ServiceError(f"The suite {key!r} has no mixed-effects model here; choose {' or '.join(own)}.")
        suite = own[key or next(iter(own))]
        done = self._evaluations.suite_outcomes(view.id, suite.key)
        read = {label for label, outcomes in done.items() if any(not outcome.unread for outcome in outcomes)}
        labels = [method.label for method in view.request.methods if method.label in read]
        if not labels:
            raise ServiceError(f"No item of {suite.title} is read yet; wait until some are, or resume the run.")
        return view, suite, labels

    def _fit(self, view: EvaluationView, suite: DiscrimEval, label: str, outside: Outside) -> tuple[Figure, ...]:
        outcomes = self._evaluations.outcomes(view.id, suite.key, label)
        key = view.id, suite.key, label, outside, len(outcomes)
        read = [outcome for outcome in outcomes if not outcome.unread]
        return self._fits.once(key, lambda: tuple(mixed_effects(read, outside)))
