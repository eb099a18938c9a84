"""The public calibration: references or rollouts, one masked branch or one a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from coft_core.calibrate import references as calibrator
from coft_core.calibrate.ledger import ledger_key
from coft_core.calibrate.rollouts import JOINT, Parts, RolloutTask, calibrate_on_rollouts, chain_prompts, views_of
from coft_core.calibrate.settings import CalibrationOptions, CalibrationSettings
from coft_core.calibrate.true_tokens import NOTHING_MASKED
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.families import FactorizedCalibration, split_alpha
from coft_core.conformal.quantile import check_alpha, check_estimator
from coft_core.conformal.split import context_numbers, groups_of
from coft_core.conformal.values import CalibrationValues
from coft_core.errors import InvalidInputError
from coft_core.model.language_model import LanguageModel
from coft_core.policies.coft import CoftPolicy, FusedPolicy, Thresholds
from coft_core.policies.factorized import FactorizedCoftPolicy
from coft_core.text.masking import kept_terms
from coft_core.types import Example, in_page_order

SOURCES = ("reference", "rollout")
"""Where contexts can come from."""

_Policy = TypeVar("_Policy", bound=FusedPolicy[Any])


def calibrate(
    model: LanguageModel,
    examples: Sequence[Example],
    lam: float = 0.6,
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    **options: Unpack[CalibrationOptions],
) -> Calibration:
    """Calibrate thresholds on given prompts.

    Contexts are split at random: one part gives the thresholds, the other is kept apart and gives the empirical
    coverage. The calibration part keeps at least as many contexts as ``alpha`` needs, whatever the share.

    Args:
        model: The model.
        examples: Prompts, with references for ``source="reference"``.
        lam: Fusion weight.
        alpha: Risk level.
        estimator: ``"hierarchical"``, ``"one_per_context"`` or ``"pooled"``.
        source: ``"reference"``: teacher-forced on each prompt's reference (a missing space between prompt and
            reference is supplied). ``"rollout"``: prefixes are written by the deployed policy itself, thresholds
            included, and the true next token is drawn from the factual branch under the same sampling controls.
        options: The policy's controls, how thresholds are read, progress and more; see :class:`CalibrationOptions`.

    Returns:
        The calibration with all its values.

    Raises:
        InvalidInputError: A parameter is outside its range, there is no example, or an example (named by its number)
            lacks a reference or a group that is needed.
        PromptTooLongError: An example does not fit into the model's context.
        LedgerMismatchError: The ledger belongs to other inputs.
    """
    if _checked(source) == "reference":
        return calibrator.calibrate(model, examples, lam, alpha, estimator, **options)
    settings, level = CalibrationSettings(**options), check_alpha(alpha)

    def assemble(parts: Parts, chosen: CalibrationValues) -> Calibration:
        return replace(parts[JOINT], chosen=chosen)

    def levels(views: Sequence[str]) -> Mapping[str, float]:
        return dict.fromkeys(views, level)

    policy = _policy(CoftPolicy, lam, settings)
    return calibrate_on_rollouts(_task(model, examples, policy, levels, assemble, estimator, settings))


def calibrate_factorized(
    model: LanguageModel,
    examples: Sequence[Example],
    lams: Sequence[float] = (0.6,),
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    by_family: Mapping[str, float] | None = None,
    **options: Unpack[CalibrationOptions],
) -> list[FactorizedCalibration]:
    """Calibrate thresholds of factorized masks: one set a family, which together hold at ``alpha``.

    Each family is calibrated on the examples in which it is masked. Contexts are split as in :func:`calibrate`, in the
    same way for all families; each family keeps at least as many as its level needs. Examples in which nothing is
    masked play no part.

    Args:
        model: The model.
        examples: Prompts, with references for ``source="reference"``.
        lams: Fusion weights. References are run once for all of them; rollouts take exactly one.
        alpha: Risk level of all families together.
        estimator: See :func:`calibrate`.
        source: See :func:`calibrate`. In a rollout the chains are written under all families' thresholds together.
        by_family: A level for each family; None shares ``alpha`` out equally among the families found.
        options: As for :func:`calibrate`.

    Returns:
        One factorized calibration for each of ``lams``.

    Raises:
        InvalidInputError: As in :func:`calibrate`; also when nothing is masked in any example, the shares of ``alpha``
            do not fit, or rollouts are asked for several weights.
        PromptTooLongError: An example does not fit into the model's context.
        LedgerMismatchError: The ledger belongs to other inputs.
    """
    if _checked(source) == "reference":
        return calibrator.calibrate_factorized(model, examples, lams, alpha, estimator, by_family=by_family, **options)
    if len(lams) != 1:
        raise InvalidInputError(
            f"There are {len(lams)} fusion weights; chains are written under one, so give one at a time for rollouts."
        )
    settings, level = CalibrationSettings(**options), check_alpha(alpha)

    def assemble(parts: Parts, chosen: CalibrationValues) -> FactorizedCalibration:
        return FactorizedCalibration(level, tuple(parts.items()), chosen)

    def levels(views: Sequence[str]) -> Mapping[str, float]:
        return split_alpha(level, in_page_order(views), by_family)

    policy = _policy(FactorizedCoftPolicy, lams[0], settings)
    task = _task(model, examples, policy, levels, assemble, estimator, settings)
    return [replace(calibrate_on_rollouts(task), unmasked=len(examples) - len(task.prompts))]


def _checked(source: str) -> str:
    if source not in SOURCES:
        raise InvalidInputError(f"There is no context source {source!r}; use one of {', '.join(SOURCES)}.")
    return source


def _policy(kind: type[_Policy], lam: float, settings: CalibrationSettings) -> _Policy:
    """The policy that will use the thresholds, without any yet."""
    return kind(
        lam,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        sentinel=settings.sentinel,
        mask_mode=settings.mask_mode,
        mask_hint=settings.mask_hint,
        families=settings.families,
        whitelist=settings.whitelist,
    )


def _task(
    model: LanguageModel,
    examples: Sequence[Example],
    policy: FusedPolicy[Thresholds],
    levels: Callable[[Sequence[str]], Mapping[str, float]],
    assemble: Callable[[Parts, CalibrationValues], Thresholds],
    estimator: str,
    settings: CalibrationSettings,
) -> RolloutTask[Thresholds]:
    """Mask the prompts and say what is calibrated, with the ledger bound to it."""
    name, model = check_estimator(estimator), calibrator.steady(model)
    groups = groups_of(examples) if settings.by_group else None
    numbers = context_numbers(examples, settings.by_group)
    prompts = chain_prompts(model, examples, numbers, policy, settings.spans)
    policy = policy.keeping({term for item in prompts for term in kept_terms(item.prompt)})
    own = replace(policy.fingerprint(model, settings.spans.version), estimator=name, source="rollout")
    contexts: dict[str, set[int]] = {}
    for item in prompts:
        for view in views_of(policy, item.prompt):
            contexts.setdefault(view, set()).add(item.context)
    if not contexts:
        raise InvalidInputError(NOTHING_MASKED)
    alphas = levels(tuple(contexts))
    if settings.ledger is not None:
        settings.ledger.bind(ledger_key("rollout", [own], examples, _decisive(settings, alphas)))
    return RolloutTask(
        model=model,
        policy=policy,
        fingerprint=own,
        prompts=[item for item in prompts if views_of(policy, item.prompt)],
        contexts={view: frozenset(members) for view, members in contexts.items()},
        alphas=alphas,
        assemble=assemble,
        settings=settings,
        groups=groups,
    )


def _decisive(settings: CalibrationSettings, alphas: Mapping[str, float]) -> dict[str, object]:
    """What chains depend on beside policy and examples: thresholds are in force, so also how they are read."""
    names = ("bin_width", "max_position", "draws", "seed", "by_group", "verification_share")
    own = {name: getattr(settings, name) for name in (*names, "max_new_tokens", "tolerance", "max_iterations")}
    # Ledgers that were begun before bins could widen have no word of it, and are of even ones.
    spacing = {} if settings.bin_spacing == "even" else {"bin_spacing": settings.bin_spacing}
    return {**own, **spacing, "alphas": dict(alphas)}
