"""The further models that a policy runs beside the audited one."""

from __future__ import annotations

from collections.abc import Mapping

from coft_core.engine.load import load_model
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.policies.base import NeedsModels, Policy


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
    for role, name in policy.models.items():
        if role not in models:
            raise InvalidInputError(f"The policy {policy.name!r} needs a model as {role!r} ({name}); load it first.")
        if models[role].tokenizer_digest != model.tokenizer_digest:
            raise InvalidInputError(
                f"The {role} model {models[role].name!r} has another tokenizer than {model.name!r}, so their "
                "probabilities cannot be combined token by token; choose a model with the same tokenizer."
            )
    return {role: models[role] for role in policy.models}
