"""The port between the core and whatever computes a model's logits: transformers, llama.cpp or a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from torch import Tensor

if TYPE_CHECKING:
    from coft_core.model.slots import RowTokens


class Rows(Protocol):
    """What an engine has read of the rows of one batch."""

    @property
    def size(self) -> int:
        """Bytes held."""

    @property
    def shared_length(self) -> int:
        """Tokens that are held once for all rows."""

    @property
    def may_join(self) -> bool:
        """Whether the next forward may be shared with other batches."""

    def size_after(self, count: int) -> int:
        """Bytes held when so many more tokens have been read."""

    def logits(self) -> Tensor:
        """Read what is pending: logits that follow each row's newest token, ``(R, V)``."""

    def cut(self) -> None:
        """Forget the newest token and those that are no longer there."""

    def copied(self, tokens: RowTokens) -> Rows:
        """A second, independent memory for earlier tokens of these rows."""

    def keep(self, rows: Sequence[int], tokens: RowTokens) -> None:
        """Go on with some of the rows, whose tokens are given."""


@runtime_checkable
class Engine(Protocol):
    """Computes logits; what a :class:`coft_core.model.language_model.LanguageModel` has in place of a module."""

    title: str
    """What it is called on pages, such as ``"llama.cpp"``."""
    computes_here: bool
    """Whether it uses this computer's processor, so that forwards wait for their turn."""
    token_bytes: int
    """Bytes of one token's keys and values; 0 where they are not held here or not known."""
    weight_bytes: int
    """Bytes of the weights; 0 where they are not held here."""
    parameter_count: int
    """Number of parameters; 0 where it is not known."""

    def open_rows(self, tokens: RowTokens) -> Rows:
        """Rows with these tokens; nothing is read yet."""

    def read(self, ids: Tensor, begin: int = 0) -> Iterator[Tensor]:
        """Logits after each token of ``(R, L)`` from a column on, some columns at a time, ``(R, w, V)`` each."""
