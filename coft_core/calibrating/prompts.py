"""Prompts of a calibration as the deployed policy masks them."""

from __future__ import annotations

from collections.abc import Sequence

from coft_core.calibrating.chains import ChainPrompt
from coft_core.decode import plan
from coft_core.engine.model import LanguageModel
from coft_core.errors import InvalidInputError
from coft_core.masking.spans import SpanDetector
from coft_core.policies.base import Policy
from coft_core.types import Example


def chain_prompts(
    model: LanguageModel,
    examples: Sequence[Example],
    contexts: Sequence[int],
    policy: Policy,
    detector: SpanDetector,
) -> list[ChainPrompt]:
    """Mask the prompts as the policy would.

    Args:
        model: The model.
        examples: Prompts; references are not needed.
        contexts: Context of each example.
        policy: The policy.
        detector: Finds spans where an example has none.

    Raises:
        InvalidInputError: There is no example, or one (named by its number) has an unusable prompt.
    """
    if not examples:
        raise InvalidInputError("There are no calibration prompts; give at least one.")
    prompts = []
    for row, (example, context) in enumerate(zip(examples, contexts, strict=True), start=1):
        try:
            prepared = plan(model, example.prompt, policy, example.spans, detector=detector)
        except InvalidInputError as error:
            raise InvalidInputError(f"Example {row}: {error}") from error
        prompts.append(ChainPrompt(prepared.prompt, context, row))
    return prompts
