"""The public calibration: contexts from references or rollouts become thresholds, of one masked branch or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from coft_core.calibrate.ledger import ledger_key
from coft_core.calibrate.rollouts import calibrate_on_rollouts
from coft_core.calibrate.settings import CalibrationOptions
from coft_core.calibrate.task import Task
from coft_core.calibrate.true_tokens import PHASE, prepare, reference_values
from coft_core.conformal.calibration import Calibration
from coft_core.errors import InvalidInputError
from coft_core.fingerprint import SINGLE_BRANCH
from coft_core.model.language_model import LanguageModel
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.factorized import FactorizedCoftPolicy
from coft_core.text.masking import continuation_ids, following, mask_prompt
from coft_core.text.turns import framed
from coft_core.types import Example


def calibrate(
    model: LanguageModel,
    examples: Sequence[Example],
    lam: float = 0.6,
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    **options: Any,
) -> Calibration:
    """Calibrate thresholds on given prompts.

    Contexts (see :func:`coft_core.context_numbers`) are split at random: one part gives the thresholds and keeps at
    least as many as ``alpha`` needs, the other gives the empirical coverage. What the examples keep from masking is put
    on the whitelist in the fingerprint, so that the thresholds serve only policies that keep the same.

    Args:
        model: The model.
        examples: Prompts, with references for ``source="reference"``.
        lam: Fusion weight.
        alpha: Risk level.
        estimator: ``"hierarchical"``, ``"one_per_context"`` or ``"pooled"``.
        source: ``"reference"``: teacher-forced on each prompt's reference. ``"rollout"``: prefixes are written by the
            deployed policy, thresholds included, and the true next token is drawn from the factual branch.
        options: See :class:`CalibrationOptions`.

    Raises:
        InvalidInputError: A parameter is outside its range, or an example lacks a reference or a group that is needed.
        PromptTooLongError: An example does not fit into the model's context.
        LedgerMismatchError: The ledger belongs to other inputs.
    """
    task = Task.of(CoftPolicy, model, examples, (lam,), alpha, estimator, source, CalibrationOptions(**options))
    return _calibrated(task)[0]


def calibrate_many(
    model: LanguageModel,
    examples: Sequence[Example],
    lams: Sequence[float],
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    **options: Any,
) -> list[Calibration]:
    """Calibrate on references for several fusion weights as :func:`calibrate` does; the model runs once."""
    if source != "reference":
        raise InvalidInputError(f"Several weights share one pass over references, not over {source!r} contexts.")
    task = Task.of(CoftPolicy, model, examples, lams, alpha, estimator, source, CalibrationOptions(**options))
    return _calibrated(task)


def calibrate_factorized(
    model: LanguageModel,
    examples: Sequence[Example],
    lams: Sequence[float] = (0.6,),
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    source: str = "reference",
    by_family: Mapping[str, float] | None = None,
    **options: Any,
) -> list[Calibration]:
    """Calibrate thresholds of factorized masks, one calibration for each of ``lams``.

    Each family is calibrated on the examples in which it is masked; all together hold at ``alpha``. Contexts are split
    in the same way for all families. Arguments and errors are those of :func:`calibrate`.

    Args:
        model: The model.
        examples: Prompts; those in which nothing is masked play no part.
        lams: Fusion weights. References are run once for all of them; rollouts take exactly one.
        alpha: Risk level of all families together.
        estimator: As for :func:`calibrate`.
        source: As for :func:`calibrate`; chains are written under all families' thresholds together.
        by_family: A level for each family; None shares ``alpha`` out equally among the families found.
        options: As for :func:`calibrate`.
    """
    settings = CalibrationOptions(**options)
    return _calibrated(
        Task.of(FactorizedCoftPolicy, model, examples, lams, alpha, estimator, source, settings, by_family)
    )


def calibrate_single_branch(
    model: LanguageModel,
    examples: Sequence[Example],
    alpha: float = 0.1,
    estimator: str = "hierarchical",
    **options: Any,
) -> Calibration:
    """Calibrate on references the log-probability of the true next token in the factual reading; nothing is masked."""
    plain = [replace(example, spans=()) for example in examples]
    joint = calibrate(model, plain, 0.0, alpha, estimator, **options)
    own = replace(joint.fingerprint, method=SINGLE_BRANCH)
    return joint.each(lambda part: replace(part, fingerprint=own))


def _calibrated(task: Task) -> list[Calibration]:
    if task.source == "rollout":
        task.model.require_all_tokens("Calibrating on rollouts")
    if not task.policies[0].takes_bounds:
        task.model.require_all_tokens(f"The policy {task.policies[0].title}")
    return [calibrate_on_rollouts(task)] if task.source == "rollout" else _calibrated_on_references(task)


def _calibrated_on_references(task: Task) -> list[Calibration]:
    """Thresholds for each policy, from one pass of the model over the references (paper Sec. 3.4, offline part)."""
    settings = task.settings
    prepared = prepare(task.model, task.examples, task.contexts, task.policies[0].mask, settings.spans)
    task = task.keeping(item.prompt for item in prepared)
    fingerprints = task.fingerprints
    if settings.ledger is not None:
        # Levels, splits and groups are read off values, so a ledger does not depend on them.
        settings.ledger.bind(ledger_key(PHASE, fingerprints, task.examples, {}))
    by_policy = reference_values(task.model, prepared, task.policies, settings)
    levels = task.levels(by_policy[0])
    contexts = {view: np.unique(values.contexts).tolist() for view, values in by_policy[0].items()}
    held_out = task.held_out(contexts, levels)
    masked = np.unique(np.concatenate([values.rows for values in by_policy[0].values()])).size
    calibrations = []
    for fingerprint, by_view in zip(fingerprints, by_policy, strict=True):
        parts = {
            view: task.thresholds(
                fingerprint,
                levels[view],
                values.select(np.setdiff1d(values.contexts, held_out).tolist()).lowered(),
                verification=values.select(held_out),
            )
            for view, values in by_view.items()
        }
        calibrations.append(task.assembled(parts, unmasked=len(task.examples) - masked))
    return calibrations


def example_length(model: LanguageModel, example: Example) -> int:
    """Tokens of an example with its reference, to be compared with the model's context."""
    written, _ = framed(example.prompt, (), model.prompting.frame, lambda _: ())
    prompt = mask_prompt(model.tokenizer, written, (), chat=model.prompting)
    text = following(model, written, example.reference or "")
    return len(prompt.factual_ids) + (len(continuation_ids(model, prompt, text)) if text else 0)
