"""What Inspect finds by the entry point: the name of the provider, without what it needs."""

from __future__ import annotations

from typing import Any

from inspect_ai.model import modelapi


@modelapi(name="coft")
def coft() -> type[Any]:
    """The provider ``coft``."""
    from coft_core.adapters.inspect_provider import CoftAPI

    return CoftAPI
