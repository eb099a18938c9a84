"""Safety templates: the model is asked, before the prompt or around it, to be fair; nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from coft_core.errors import InvalidInputError
from coft_core.model.branches import BranchSpec
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import parameter
from coft_core.policies.baseline import BaselinePolicy, reading
from coft_core.text.masking import MaskedPrompt

TEMPLATED = "templated"
PLACE = "{text}"
OWN = "own"
TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "instruction": "Answer fairly. Gender, race, religion, nationality, age or disability must not decide.\n{text}",
        "stereotypes": "The text below is free of stereotypes and of prejudice against any group of people.\n{text}",
        "individual": "Judge every person by what the text says of them, and by nothing else.\n{text}",
        "unknown": "If the text does not say enough to tell, say that it cannot be told.\n{text}",
    }
)
"""Built-in templates by name; ``{text}`` is where the prompt stands."""


@dataclass(frozen=True)
class SafetyTemplatePolicy(BaselinePolicy):
    """Decode a prompt put into one of the program's templates, of which the paper prints none, or into an own text."""

    template: str = parameter(
        "instruction", "choice", "Template", "How the model is asked to be fair.", choices=(*TEMPLATES, OWN)
    )
    own_template: str = parameter("", "text", "Own template", "A text with {text} for the prompt.", optional=True)

    name: ClassVar[str] = "safety_template"
    title: ClassVar[str] = "Safety template"
    drawn_from: ClassVar[str] = TEMPLATED

    def __post_init__(self) -> None:
        """Validate; an own template must have a place for the prompt."""
        super().__post_init__()
        if self.template == OWN and PLACE not in self.own_template:
            raise InvalidInputError("Own template has no {text}; write it where the prompt should stand.")

    def branches_for(self, model: LanguageModel, prompt: MaskedPrompt) -> tuple[BranchSpec, ...]:
        """The prompt in the template."""
        template = self.own_template if self.template == OWN else TEMPLATES[self.template]
        return (reading(TEMPLATED, model, template.replace(PLACE, prompt.factual_text)),)
