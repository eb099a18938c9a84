"""Methods made ready: which of them are read together, what they run besides the model, and whether they can run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from app.evaluate.items import digest_of
from app.evaluate.methods import check_method
from app.evaluate.runs import EvaluationMethod, EvaluationRequest
from app.hosting.model_host import ModelHost
from app.shared.audits import AuditSettings
from app.shared.decoding import FRAMED
from app.shared.errors import ServiceError
from app.shared.planning import Detectors, Planner, pinned, policy_of, prompted
from app.shared.wiring import Services
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.quantile import check_alpha
from coft_core.errors import CoftError
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Policy, parameters_of
from coft_core.scorers.base import ToxicityScorer
from coft_core.text.detection import SpanDetector
from coft_core.text.thinking import ThinkingMarks, named_marks, thinking_marks

PROBE = "She said that he"
"""Every method plans this text before an evaluation begins: what it needs and is not there shows then."""


@dataclass(frozen=True)
class ReadyMethod:
    """A method with the policy that it reads with where it has no thresholds."""

    method: EvaluationMethod
    policy: Policy
    digest: str
    """Digest of the policy's fingerprint without thresholds."""

    @property
    def label(self) -> str:
        """Its label."""
        return self.method.label

    def with_thresholds(self, calibration: Calibration | None) -> Policy:
        """Its policy with thresholds; None certifies nothing."""
        return policy_of(self.method.settings, calibration)


@dataclass(frozen=True)
class MethodGroup:
    """Methods that are read together: they prompt alike, find the same spans, and run the same further models."""

    methods: tuple[ReadyMethod, ...]
    model: LanguageModel
    detector: SpanDetector
    dropped: float
    marks: ThinkingMarks | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the methods."""
        return tuple(ready.label for ready in self.methods)


@dataclass(frozen=True)
class LoadedGroup:
    """A group with what its methods run besides the model."""

    group: MethodGroup
    models: Mapping[str, LanguageModel]
    scorers: Mapping[str, ToxicityScorer]

    @cached_property
    def further(self) -> dict[str, dict[str, str]]:
        """Digests of what each method runs besides the model, by label and then by role."""
        marks = self.group.marks
        # Texts without their thinking are others than those that were kept with it.
        apart = {} if marks is None else {"thinking apart": f"{marks.opens} {marks.closes}"}
        return {ready.label: self._further(ready.policy) | apart for ready in self.group.methods}

    def _further(self, policy: Policy) -> dict[str, str]:
        models = {f"model {role}": self.models[role].weights_digest for role in policy.models}
        scorers = {f"scorer {role}": self.scorers[name].version for role, name in policy.scorers.items()}
        files = {
            f"file {item.name}": digest_of(Path(path).read_bytes().hex())
            for item in parameters_of(policy)
            if item.kind == "file" and (path := getattr(policy, item.name))
        }
        return models | scorers | files


class MethodPreparer:
    """Makes the methods of requests ready."""

    def __init__(
        self, host: ModelHost, detectors: Detectors, planner: Planner, marks: Sequence[ThinkingMarks] = ()
    ) -> None:
        """Wire it; ``marks`` of thinking are looked for before the known ones."""
        self._host, self._marks = host, tuple(marks)
        self._detectors = detectors
        self._planner = planner

    @classmethod
    def wired(cls, services: Services) -> MethodPreparer:
        """Built from the program's services."""
        marks = named_marks(services.settings.thinking_marks)
        return cls(services[ModelHost], services[Detectors], services[Planner], marks)

    def settled(self, request: EvaluationRequest) -> EvaluationRequest:
        """The request with all that its methods' settings leave open, so that a resumed run reads as this one."""
        model = self._host.get(request.model)
        methods = []
        for method in request.methods:
            check_method(method)
            settings = pinned(model, _own(method.settings, request.model))
            families = self._detectors.choose(settings).masked_families
            methods.append(replace(method, settings=replace(settings, masked_families=families)))
        return replace(request, methods=tuple(methods), weights_digest=model.weights_digest)

    def check(self, request: EvaluationRequest) -> None:
        """Have every method of a settled request plan a text, with all that it runs besides the model."""
        for method in request.methods:
            if problem := self.problem(method):
                raise ServiceError(problem)

    def problem(self, method: EvaluationMethod) -> str:
        """Why a method cannot run, as a sentence that names it; empty if it can."""
        try:
            check_alpha(method.settings.alpha)
            self._planner.plan(self._host.get(method.settings.model), PROBE, None, method.settings)
        except (CoftError, ServiceError) as error:
            return f"The method “{method.label}” cannot run: {error}"
        return ""

    def groups(self, request: EvaluationRequest) -> list[MethodGroup]:
        """The methods of a settled request as they are read together, those that run nothing else first."""
        alike: dict[Hashable, list[EvaluationMethod]] = {}
        for method in request.methods:
            alike.setdefault(_shared(method), []).append(method)
        groups = [self._group(methods) for methods in alike.values()]
        return sorted(groups, key=lambda group: bool(group.methods[0].policy.models))

    def _group(self, methods: list[EvaluationMethod]) -> MethodGroup:
        settings = methods[0].settings
        model, detector = prompted(self._host.get(settings.model), settings), self._detectors.choose(settings)
        ready = []
        for method in methods:
            policy = policy_of(method.settings, None)
            ready.append(ReadyMethod(method, policy, policy.fingerprint(model, detector.version).digest))
        return MethodGroup(tuple(ready), model, detector, methods[0].dropped, self.marks(model))

    def marks(self, model: LanguageModel) -> ThinkingMarks | None:
        """What a model's thinking is put between."""
        return thinking_marks(model.tokenizer, self._marks)

    def load(self, group: MethodGroup) -> LoadedGroup:
        """A group with what its methods run besides the model."""
        models: dict[str, LanguageModel] = {}
        scorers: dict[str, ToxicityScorer] = {}
        for ready in group.methods:
            models |= self._host.further(ready.policy, group.model)
            scorers |= self._host.scorers(ready.policy, group.model)
        return LoadedGroup(group, models, scorers)


def _own(settings: AuditSettings, model: str) -> AuditSettings:
    """The settings on a model, without what belongs to a single audit."""
    # Where only one token is drawn, it is the likeliest.
    top_k = 1 if settings.greedy else settings.top_k
    return replace(settings, model=model, calibration_id=None, group=None, seed=0, greedy=False, top_k=top_k)


def _shared(method: EvaluationMethod) -> Hashable:
    """Equal for methods that can be read together."""
    settings, policy = method.settings, policy_of(method.settings, None)
    return (
        *(getattr(settings, name) for name in FRAMED),
        settings.masked_families, settings.user_list_id, method.dropped,
        tuple(sorted(policy.models.items())), tuple(sorted(policy.scorers.items())),
    )  # fmt: skip
