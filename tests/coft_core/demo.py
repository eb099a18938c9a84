"""The embedded model for tests that change nothing of it: read, tried out and traced once in a process."""

import functools

from coft_core.model.language_model import LanguageModel
from coft_core.model.load import load_model


@functools.cache
def demo_model(**options: object) -> LanguageModel:
    """The embedded model, loaded with these options."""
    return load_model("demo", **options)  # type: ignore[arg-type]
