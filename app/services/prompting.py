"""How a model is prompted under settings: through its chat template or plainly, and as of which moment."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from app.services.views import AuditSettings, CalibrationRequest
from coft_core.engine.model import LanguageModel
from coft_core.masking.rendering import FORMATS, Rendering, moment_of
from db.records import JsonObject

__all__ = ["FORMATS", "pinned", "prompted", "rendering_of"]

Asked = TypeVar("Asked", AuditSettings, CalibrationRequest)


def prompted(model: LanguageModel, settings: AuditSettings | CalibrationRequest) -> LanguageModel:
    """A model as the settings prompt it, with all prompts rendered as of one moment.

    Raises:
        InvalidInputError: There is no such prompt format, the model has no chat template, or the date is none.
    """
    return model.formatted(settings.prompt_format).dated(settings.chat_date)


def pinned(model: LanguageModel, settings: Asked) -> Asked:
    """The settings with the day that the chat template prints, for work that goes on or is resumed on another day.

    Raises:
        InvalidInputError: As :func:`prompted`.
    """
    at = moment_of(prompted(model, settings).rendering_label)
    return settings if at is None else replace(settings, chat_date=at)


def rendering_of(stored: JsonObject | None, model: LanguageModel) -> Rendering:
    """How a stored session's model read its prompt; sessions of earlier versions are rendered anew, as they were.

    Args:
        stored: What the session keeps of it; None for sessions of earlier versions.
        model: The model as it was loaded.

    Raises:
        InvalidInputError: What is kept is damaged.
    """
    return Rendering(model.chat) if stored is None else Rendering.from_dict(stored)
