"""COFT: counterfactual-conformal decoding for frozen causal language models, token by token.

The names of :mod:`coft_core.public` are the public surface of the core. They are loaded when the first of them is asked
for, so that :mod:`coft_core.types` can be had without PyTorch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coft_core.public import *  # noqa: F403


class _Core(ModuleType):
    """The package, in which ``calibrate`` is the function, whatever was imported of the folder of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "calibrate" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "__all__" or not name.startswith("_"):
            member = getattr(import_module("coft_core.public"), name, None)
            if member is not None:
                return member
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _Core
