"""What a rollout has to know before its first step: model, policy, masked prompt, and what may be claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coft_core.decode.record import FULL_BYTES
from coft_core.errors import InvalidInputError
from coft_core.model.group import BASE
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import load_model
from coft_core.model.noise import NumericNoise, model_noise
from coft_core.policies.base import Policy
from coft_core.scorers.base import ToxicityScorer, load_scorer
from coft_core.text.detection import SpanDetector, default_detector
from coft_core.text.language import language_note
from coft_core.text.masking import MaskedPrompt, keep_whitelisted, mask_families, mask_prompt
from coft_core.text.turns import frame_of, framed
from coft_core.types import Certificate, Span


def needed_models(policy: Policy, model: LanguageModel) -> dict[str, LanguageModel]:
    """Load the further models of a policy, on the audited model's device and in its type."""
    loaded: dict[str, LanguageModel] = {}
    for role, name in policy.models.items():
        same = next((other for other_role, other in loaded.items() if policy.models[other_role] == name), None)
        loaded[role] = same or load_model(name, device=str(model.device), dtype=model.dtype_name)
    return check_models(policy, model, loaded)


def check_models(policy: Policy, model: LanguageModel, models: Mapping[str, LanguageModel]) -> dict[str, LanguageModel]:
    """The models that a policy needs, of those that are there."""
    for role, name in policy.models.items():
        if role not in models:
            raise InvalidInputError(f"The policy {policy.title} needs a model as {role!r} ({name}); load it first.")
        if role not in policy.writers and models[role].tokenizer_digest != model.tokenizer_digest:
            raise InvalidInputError(
                f"The {role} model {models[role].name!r} has another tokenizer than {model.name!r}, so their "
                "probabilities cannot be combined token by token; choose a model with the same tokenizer."
            )
    return {role: models[role] for role in policy.models}


def with_scorers(policy: Policy, scorers: Mapping[str, ToxicityScorer] | None, device: str = "cpu") -> Policy:
    """A policy with the scorers that it asks."""
    loaded = {}
    for role, name in policy.scorers.items():
        if scorers is not None and name not in scorers:
            raise InvalidInputError(f"The policy {policy.title} asks the toxicity scorer {name!r}; load it first.")
        loaded[role] = load_scorer(name, device) if scorers is None else scorers[name]
    return policy.with_scorers(loaded)


NOTHING_MASKED = (
    "Nothing is masked, so the factual and the masked branch are equal and the audit cannot show any sensitivity."
)


ONLY_MOST_LIKELY = (
    "Only the {} most likely tokens of each step came back: the probability of another token is an upper bound, and a "
    "difference between two readings is the least that it can be."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a rollout needs to know before its first step."""

    model: LanguageModel
    policy: Policy
    prompt: MaskedPrompt
    certificate: Certificate
    seed: int = 0
    greedy: bool = False
    max_new_tokens: int = 64
    keep_logits: bool = False
    full_bytes: int = FULL_BYTES
    models: Mapping[str, LanguageModel] = field(default_factory=dict)

    @property
    def all_models(self) -> dict[str, LanguageModel]:
        """The audited model and the further ones, by the name under which branches ask for them."""
        return {BASE: self.model, **self.models}

    @property
    def noise(self) -> NumericNoise:
        """Within what the model's log-probabilities agree at the policy's temperature, however it is run."""
        return model_noise(self.model, self.policy.sampling.temperature)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that must be shown with anything made from this plan."""
        rows = {branch.input_ids for branch in self.policy.branches(self.prompt)}
        masked = mask_families(self.prompt, self.policy.mask.families)
        nothing = NOTHING_MASKED if rows | {masked} == {self.prompt.factual_ids} else ""
        notes = (language_note(self.prompt.factual_text), nothing, self.model.rendering_note, self.model.thinking_note)
        if self.model.most_likely is not None:
            notes += (ONLY_MOST_LIKELY.format(self.model.most_likely),)
        return (*self.prompt.warnings, *filter(None, notes), *self.policy.notes(self.prompt))


def plan(
    model: LanguageModel,
    text: str,
    policy: Policy,
    spans: Sequence[Span] | None = None,
    seed: int = 0,
    greedy: bool = False,
    max_new_tokens: int = 64,
    detector: SpanDetector | None = None,
    keep_logits: bool = False,
    full_bytes: int = FULL_BYTES,
    models: Mapping[str, LanguageModel] | None = None,
    scorers: Mapping[str, ToxicityScorer] | None = None,
) -> Plan:
    """Mask a prompt and check that it can be decoded under a policy.

    Args:
        model: The model.
        text: The reviewer's text.
        policy: The policy.
        spans: Sensitive spans; None detects them. Suggested and kept ones are never masked.
        seed: Seed of the keyed draws.
        greedy: Take the likeliest token instead of drawing.
        max_new_tokens: Steps at most.
        detector: Finds the spans when none are given; its version is part of the fingerprint either way.
        keep_logits: Keep the logits of every step; see :func:`coft_core.decode.reread`.
        full_bytes: Logits of a step that take more bytes than this, before compression, are not kept.
        models: Further models that the policy runs, by name; None loads them as the audited one was loaded.
        scorers: Toxicity scorers by the name that the policy asks for them; None loads them.

    Raises:
        InvalidInputError: The prompt is empty, a span lies outside it, ``max_new_tokens`` is below 1, or a further
            model is missing or reads other tokens than the audited one.
        SentinelError: The policy's sentinel is not one token, or it masks something and the vocabulary has none.
        ModelLoadError: A further model cannot be loaded.
        CalibrationMismatch: The policy's calibration belongs to another policy.
    """
    if not text.strip():
        raise InvalidInputError("The prompt is empty; type at least one word.")
    if not policy.takes_bounds:
        model.require_all_tokens(f"The policy {policy.title}")
    if max_new_tokens < 1:
        raise InvalidInputError(f"The number of steps is {max_new_tokens}; ask for at least one.")
    detector = detector or default_detector()
    frame = model.prompting.frame
    text, spans = framed(text, spans, frame, detector.detect)
    model = model.framed(frame_of(text, frame.thinking)).keeping_prompts()
    mask = policy.mask
    prompt = mask_prompt(
        model.tokenizer,
        text,
        keep_whitelisted(text, detector.detect(text) if spans is None else spans, mask.whitelist),
        sentinel=mask.sentinel,
        mode=mask.mode,
        hint=mask.hint,
        chat=model.prompting,
        required=policy.needs_masked,
    )
    certificate = policy.certificate(model, detector.version)
    further = needed_models(policy, model) if models is None else check_models(policy, model, models)
    # What a further model writes must not depend on when it is asked either.
    further = {role: other.dated(model.prompting.moment) for role, other in further.items()}
    policy = with_scorers(policy, scorers, str(model.device)).bound(model, further, prompt)
    return Plan(
        model, policy, prompt, certificate, seed, greedy, max_new_tokens, keep_logits, full_bytes, models=further
    )
