"""What a policy runs beside the audited model: further models, and scorers."""

from __future__ import annotations

from collections.abc import Mapping

from coft_core.engine.load import load_model
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.policies.base import AsksWriters, NeedsModels, NeedsScorers, Policy
from coft_core.scorers.base import ToxicityScorer, load_scorer


def needed_models(policy: Policy, model: LanguageModel) -> dict[str, LanguageModel]:
    """Load the further models of a policy, on the audited model's device and in its type.

    Args:
        policy: The policy.
        model: The audited model.

    Returns:
        Loaded models by the name under which the policy's branches ask for them; empty for most policies.

    Raises:
        ModelLoadError: One of them cannot be loaded.
        InvalidInputError: One of them reads other tokens than the audited model.
    """
    if not isinstance(policy, NeedsModels):
        return {}
    loaded: dict[str, LanguageModel] = {}
    for role, name in policy.models.items():
        same = next((done for other, done in loaded.items() if policy.models[other] == name), None)
        loaded[role] = same or load_model(name, device=str(model.device), dtype=model.dtype_name)
    return check_models(policy, model, loaded)


def check_models(policy: Policy, model: LanguageModel, models: Mapping[str, LanguageModel]) -> dict[str, LanguageModel]:
    """The models that a policy needs, of those that are there.

    Args:
        policy: The policy.
        model: The audited model.
        models: Loaded models by name.

    Raises:
        InvalidInputError: One is missing, or reads other tokens than the audited model.
    """
    if not isinstance(policy, NeedsModels):
        return {}
    writers = policy.writers if isinstance(policy, AsksWriters) else ()
    for role, name in policy.models.items():
        if role not in models:
            raise InvalidInputError(f"The policy {policy.title} needs a model as {role!r} ({name}); load it first.")
        if role not in writers and models[role].tokenizer_digest != model.tokenizer_digest:
            raise InvalidInputError(
                f"The {role} model {models[role].name!r} has another tokenizer than {model.name!r}, so their "
                "probabilities cannot be combined token by token; choose a model with the same tokenizer."
            )
    return {role: models[role] for role in policy.models}


def with_scorers(policy: Policy, scorers: Mapping[str, ToxicityScorer] | None, device: str = "cpu") -> Policy:
    """A policy with the scorers that it asks.

    Args:
        policy: The policy.
        scorers: Loaded scorers by the name that they are asked for; None loads them.
        device: Where those that are loaded run.

    Raises:
        ModelLoadError: One cannot be loaded.
        InvalidInputError: One is missing.
    """
    if not isinstance(policy, NeedsScorers):
        return policy
    found = {}
    for role, name in policy.scorers.items():
        if scorers is not None and name not in scorers:
            raise InvalidInputError(f"The policy {policy.title} asks the toxicity scorer {name!r}; load it first.")
        found[role] = load_scorer(name, device) if scorers is None else scorers[name]
    return policy.with_scorers(found)
