"""What the contract test runs each method with: every registered one must be listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coft_core.engine.fake import tiny_model
from coft_core.engine.model import LanguageModel
from coft_core.policies.base import NeedsModels, Policy
from coft_core.policies.registry import method


@dataclass(frozen=True)
class Case:
    """A method with parameters that exercise it on a tiny model.

    Attributes:
        name: The method.
        parameters: Its own parameters.
        models: Whether each further model is another tiny one: role to seed.
    """

    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    models: Mapping[str, int] = field(default_factory=dict)

    def policy(self, **controls: object) -> Policy:
        """The policy."""
        return method(self.name).build(self.parameters, **controls)

    def loaded(self) -> dict[str, LanguageModel]:
        """Its further models."""
        policy = self.policy()
        roles = policy.models if isinstance(policy, NeedsModels) else {}
        return {role: tiny_model(seed=self.models[role]) for role in roles}


CASES = (
    Case("vanilla"),
    Case("coft"),
    Case("coft-factorized"),
    Case("sdd"),
    Case("safety_template"),
    Case("dexperts"),
    Case("dexperts", {"expert": "one", "anti_expert": "two"}, {"expert": 3, "anti-expert": 4}),
    Case("gedi"),
    Case("gedi", {"discriminator": "a tiny model"}, {"discriminator": 3}),
    Case("contrastive"),
    Case("contrastive", {"against": "amateur", "amateur": "a tiny model"}, {"amateur": 3}),
)
