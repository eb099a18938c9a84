"""Activation hooks that are on during one forward and gone afterwards, whatever happens in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol


class Removable(Protocol):
    """What attaching gives back, such as PyTorch's handle of a hook."""

    def remove(self) -> None:
        """Take the hook off."""


Hook = Callable[[Any], Removable]
"""Attaches itself to a transformers module and returns what takes it off again."""


@contextmanager
def attached(module: Any, hooks: Sequence[Hook]) -> Iterator[None]:
    """Attach hooks to a module for the time of a ``with`` block; errors inside it, or in a later hook, remove them too.

    Args:
        module: The transformers module.
        hooks: The hooks, attached in this order.
    """
    with ExitStack() as stack:
        for hook in hooks:
            stack.callback(hook(module).remove)
        yield
