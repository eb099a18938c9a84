"""All decoding methods by name, for pages, commands and suites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from coft_core.errors import InvalidInputError
from coft_core.policies.ablations import NoCertificationPolicy, NoFusionPolicy, SingleBranchPolicy
from coft_core.policies.base import Parameter, Policy, parameters_of
from coft_core.policies.cafie import CafiePolicy
from coft_core.policies.cf_substitution import CfSubstitutionPolicy
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.contrastive import ContrastivePolicy
from coft_core.policies.dexperts import DExpertsPolicy
from coft_core.policies.factorized import FactorizedCoftPolicy
from coft_core.policies.gedi import GediPolicy
from coft_core.policies.iti import ItiPolicy
from coft_core.policies.neutral_rewrite import NeutralRewritePolicy
from coft_core.policies.safety_template import SafetyTemplatePolicy
from coft_core.policies.scored import DetoxPolicy, DtcdPolicy
from coft_core.policies.sdd import SddPolicy
from coft_core.policies.train_time import AdversarialHeadPolicy, CdaPolicy
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.types import CertifiedIn

Kind = Literal["reference", "fusion", "prompt", "steering", "constraint", "training"]
"""What a method acts on: nothing, the fused branches, the prompt, logits or activations, the tokens that are allowed,
or the weights."""


@dataclass(frozen=True, slots=True)
class Method:
    """A decoding method that can be chosen by name."""

    policy: type[Any]
    kind: Kind
    summary: str
    source: str
    differs: str
    calibrated: bool = False
    fuses: bool = False

    @property
    def name(self) -> str:
        """Its name in commands, as its policy declares it."""
        return str(self.policy.name)

    @property
    def title(self) -> str:
        """Its name on pages and in sentences, as its policy declares it."""
        return str(self.policy.title)

    @property
    def certified_in(self) -> CertifiedIn:
        """The readings by which its tokens are certified, where it takes a calibration."""
        readings: CertifiedIn = self.policy.certified_in
        return readings

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its own parameters, besides the controls that all methods share."""
        return parameters_of(self.policy)

    def build(self, parameters: Mapping[str, object] | None = None, **controls: Any) -> Policy:
        """A policy of this method."""
        values = dict(parameters or {})
        known = [item.name for item in self.parameters]
        for name in values:
            if name not in known:
                choice = f"it has {', '.join(known)}" if known else "it has none of its own"
                raise InvalidInputError(f"The policy {self.name!r} has no parameter {name!r}; {choice}.")
        accepted = {item.name for item in fields(self.policy) if item.init}
        values |= {name: value for name, value in controls.items() if name in accepted}
        policy: Policy = self.policy(**values)
        return policy


METHODS: tuple[Method, ...] = (
    Method(VanillaPolicy, "reference", "The model as it is.", "",
        "Nothing: it draws from the model under the sampling controls alone."),
    Method(CoftPolicy, "fusion",
        "Mixes the readings with the sensitive words shown and masked; keeps words likely in both.",
        "COFT, ICML 2026",
        "The paper pools the tokens of all texts; here thresholds count texts unless the pooled estimator is chosen, "
        "and scores are compared as logarithms.", calibrated=True, fuses=True),
    Method(FactorizedCoftPolicy, "fusion", "One masked reading for each attribute family.", "COFT, ICML 2026",
        "As COFT; the paper leaves open what several masked readings are fused as, which is the mean of their logits "
        "here.", calibrated=True, fuses=True),
    Method(NoFusionPolicy, "fusion", "Draws from the factual reading; certifies like COFT.",
        "COFT, ICML 2026, ablations",
        "As COFT, which has it as an ablation.", calibrated=True),
    Method(NoCertificationPolicy, "fusion", "Fuses like COFT and refuses no token.", "COFT, ICML 2026, ablations",
        "As COFT, which has it as an ablation.", fuses=True),
    Method(SingleBranchPolicy, "fusion", "Fuses like COFT, certifies in the factual reading alone.",
        "COFT, ICML 2026, ablations",
        "As COFT, which has it as an ablation.", calibrated=True, fuses=True),
    Method(DtcdPolicy, "constraint", "Tokens must be likely enough and not too toxic.", "COFT, ICML 2026, section 5",
        "The paper describes it in a sentence; which tokens are scored, the scorer and the cap are this program's.",
        calibrated=True),
    Method(DetoxPolicy, "constraint", "Leaves out tokens that would make the text toxic.", "",
        "COFT's paper names a toxicity filter without a rule; the filter, the weights and the scorer are this "
        "program's."),
    Method(SafetyTemplatePolicy, "prompt", "Asks the model to be fair before it reads the prompt.", "",
        "COFT's paper names safety templates and prints none; the built-in ones are this program's."),
    Method(CfSubstitutionPolicy, "fusion", "Averages the prompt with the same prompt about other groups.",
        "Maudslay et al., EMNLP 2019",
        "The authors substitute in training data; here the readings of a prompt and of its substitutions are "
        "averaged while decoding."),
    Method(CafiePolicy, "fusion", "Weighs down what the prompt makes likelier than the same prompt about other groups.",
        "Banerjee et al., AAAI 2024",
        "The authors' rule with this program's substitutions for their word lists; each counterfactual counts by its "
        "own probabilities at the newest position alone."),
    Method(NeutralRewritePolicy, "prompt", "Rewrites the prompt without its attributes first.",
        "Vanmassenhove et al., EMNLP 2021",
        "The authors train a rewriter; here tables rewrite the masked spans alone, or a model that is named does by "
        "an instruction."),
    Method(SddPolicy, "steering", "Scales down what a reading told to be biased finds likelier.",
        "Schick et al., TACL 2021",
        "The authors describe toxicity; the descriptions here are of the attributes, and probabilities are taken at "
        "the policy's temperature."),
    Method(DExpertsPolicy, "steering", "Adds what an expert says beyond an anti-expert.", "Liu et al., ACL 2021",
        "The authors train expert and anti-expert; where none are named, the model itself with an instruction before "
        "the prompt stands in for them."),
    Method(GediPolicy, "steering", "Follows a class-conditional reading's judgement of every token.",
        "Krause et al., EMNLP 2021",
        "The authors train the discriminator; where none is named, the model with an instruction stands in for it. "
        "Their product of likelihoods includes the prompt's tokens, they weight before the temperature and penalise "
        "repetition."),
    Method(ItiPolicy, "steering", "Moves chosen attention heads along fitted directions.", "Li et al., NeurIPS 2023",
        "The authors move the newest token of each step; here every position is moved. Directions and strength are "
        "fitted on other texts."),
    Method(CdaPolicy, "training", "A checkpoint trained on texts with attributes swapped.", "Zmigrod et al., ACL 2019",
        "The authors swap genders with rules for inflected languages; the checkpoint here is trained on this "
        "program's word tables."),
    Method(AdversarialHeadPolicy, "training", "A checkpoint whose head was trained against an adversary.",
        "Ganin et al., JMLR 2016",
        "The authors train a network's features against the adversary; here the language-model head alone is trained "
        "so."),
    Method(ContrastivePolicy, "steering", "Moves away from an amateur model, or from what the attribute adds.",
        "Li et al., ACL 2023",
        "The authors contrast an expert with a smaller amateur alone and search with a beam: set against to amateur, "
        "expert_weight to 0 and guidance to 1. The default, which contrasts the masked with the factual reading, is "
        "this program's."),
)  # fmt: skip


def method(name: str) -> Method:
    """The method of a name."""
    for item in METHODS:
        if item.name == name:
            return item
    raise InvalidInputError(f"There is no policy {name!r}; choose one of {', '.join(m.name for m in METHODS)}.")
