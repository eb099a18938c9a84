"""Branches that read another text than the reviewer's, with the same tokens generated after it."""

from __future__ import annotations

from coft_core.engine.branches import BranchSpec
from coft_core.engine.group import BASE
from coft_core.engine.model import LanguageModel
from coft_core.masking.masker import prompt_ids


def reading(name: str, model: LanguageModel, text: str, role: str = BASE) -> BranchSpec:
    """A branch that reads a text, put through the model's chat template where the prompt is.

    Args:
        name: Name of the branch.
        model: The audited model, for its tokenizer and template.
        text: The text.
        role: Name under which the branch asks for its model.

    Raises:
        InvalidInputError: The text is empty.
    """
    return BranchSpec(name, prompt_ids(model.tokenizer, text, model.prompting), role)


def framed(text: str, before: str = "", after: str = "") -> str:
    """A text between two others."""
    return f"{before}{text}{after}"
