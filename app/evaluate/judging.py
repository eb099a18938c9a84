"""Who judges written texts: loaded once for a run, and part of the keys of what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.evaluate.runs import EvaluationRequest
from app.shared.errors import ServiceError
from coft_core.errors import CoftError
from coft_core.experiments.certificates import with_fallbacks
from coft_core.model.load import DEMO
from coft_core.scorers.base import EMBEDDED
from coft_core.suites.base import Outcome, Suite
from coft_core.suites.features import load_featuriser, with_features
from coft_core.suites.judges import TOXICITY, load_judge
from coft_core.suites.judges import judge as judged
from coft_core.suites.mauve import FEATURES

USUAL = {TOXICITY: EMBEDDED, FEATURES: DEMO}
"""What makes a judgement where the request names nothing, by the judgement's name."""

KEPT = 4
"""Judges that stay loaded: a run has them when it is asked for and when it begins."""


@dataclass(frozen=True, slots=True)
class LoadedJudge:
    """A judge that is loaded."""

    version: str
    read: Callable[[Sequence[Outcome]], Sequence[Outcome]]


@dataclass(frozen=True, slots=True)
class Judges:
    """The judges of a run, by suite and judgement."""

    of: Mapping[str, Mapping[str, LoadedJudge]]

    def versions(self, suite: str) -> dict[str, str]:
        """Versions of a suite's judges, by name."""
        return {name: judge.version for name, judge in self.of[suite].items()}

    def judged(self, suite: str, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """Outcomes with what a suite's judges say of them."""
        for judge in self.of[suite].values():
            outcomes = judge.read(outcomes)
        return outcomes


def sources_of(request: EvaluationRequest, suites: Sequence[Suite]) -> dict[str, str]:
    """What makes each judgement that the suites want, by name; without those that nothing is named for."""
    wanted = {name for suite in suites for name in suite.judges}
    named = dict(request.judges)
    if unknown := sorted(named.keys() - wanted):
        can = f"they want {', '.join(sorted(wanted))}" if wanted else "they want none"
        raise ServiceError(f"None of the suites wants the judgement {unknown[0]!r}; {can}.")
    return {name: source for name, source in (USUAL | named).items() if name in wanted}


def load_judges(request: EvaluationRequest, suites: Sequence[Suite], device: str) -> Judges:
    """The judges of a request."""
    loaded = {}
    for name, source in sources_of(request, suites).items():
        try:
            loaded[name] = _load(name, source, device)
        except CoftError as error:
            raise ServiceError(f"The judge of {name} cannot be used: {error}") from error
    return Judges({suite.key: {name: loaded[name] for name in suite.judges if name in loaded} for suite in suites})


def unjudged(request: EvaluationRequest, suites: Sequence[Suite]) -> tuple[str, ...]:
    """Which figures are left out because nothing is named that judges texts for them; a sentence a suite."""
    named = USUAL.keys() | dict(request.judges).keys()
    missing = ((suite, [name for name in suite.judges if name not in named]) for suite in suites)
    return tuple(
        f"{suite.title} has figures of {' and '.join(names)}, which are left out: nothing is named that judges texts "
        f"for them (a judge is named as {names[0]}=SOURCE)."
        for suite, names in missing
        if names
    )


@lru_cache(KEPT)
def _load(name: str, source: str, device: str) -> LoadedJudge:
    if name == FEATURES:
        featuriser = load_featuriser(source, device)
        return LoadedJudge(featuriser.version, lambda outcomes: with_features(outcomes, featuriser))
    judge = load_judge(name, source, device)
    if name == TOXICITY:
        return LoadedJudge(judge.version, lambda outcomes: with_fallbacks(judged(outcomes, {name: judge}), judge))
    return LoadedJudge(judge.version, lambda outcomes: judged(outcomes, {name: judge}))
