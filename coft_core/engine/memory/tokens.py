"""Tokens of rows that continue prompts of their own with equally many tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from coft_core.engine.memory.slots import capacity_for


class RowTokens:
    """Prompts, and the tokens generated behind them; column 0 of the latter is each prompt's last token."""

    def __init__(self, prompts: Sequence[Sequence[int]], context_length: int, device: torch.device) -> None:
        """Lay the prompts out.

        Args:
            prompts: Tokens of each row, at least one each.
            context_length: Longest row that the model takes.
            device: Where the tokens are kept.
        """
        self.prompts = tuple(tuple(prompt) for prompt in prompts)
        self.longest = max(len(prompt) for prompt in self.prompts)
        self.generated = 0
        self._context_length = context_length
        self._tail = torch.tensor([[prompt[-1]] for prompt in self.prompts], device=device)  # (R, 1 + capacity)

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return len(self.prompts)

    @property
    def uniform(self) -> bool:
        """Whether all prompts have one length."""
        return all(len(prompt) == self.longest for prompt in self.prompts)

    @property
    def device(self) -> torch.device:
        """Where the tokens are."""
        return self._tail.device

    def shared(self) -> int:
        """Tokens at the beginning that are equal in all rows; every row has at least one more."""
        first, most = self.prompts[0], min(len(prompt) for prompt in self.prompts) - 1
        return next((i for i in range(most) if any(prompt[i] != first[i] for prompt in self.prompts)), most)

    def append(self, token_ids: Tensor) -> None:
        """Write one token a row, ``(R,)``."""
        place = self.generated + 1
        if place >= self._tail.shape[1]:
            wider = self._tail.new_zeros((self.rows, 1 + capacity_for(place, self._context_length)))
            wider[:, :place] = self._tail[:, :place]
            self._tail = wider
        self._tail[:, place].copy_(token_ids.reshape(-1), non_blocking=True)
        self.generated = place

    def after(self, held: int) -> Tensor:
        """Tokens that follow the first ``held`` generated ones, ``(R, q)``; -1 begins with the prompts' last tokens."""
        return self._tail[:, held + 1 : self.generated + 1]

    def rest(self, start: int) -> Tensor:
        """Prompts of one length from a token on, and all that was generated, ``(R, L - start + generated)``."""
        prompts = torch.tensor([prompt[start:] for prompt in self.prompts], device=self.device)
        return torch.cat([prompts, self.after(0)], dim=1)

    def bodies(self, start: int) -> Tensor:
        """Prompts from a token on without their last ones, padded on the right, ``(R, L - 1 - start)``."""
        width = self.longest - 1 - start
        rows = [[*prompt[start:-1], *[0] * (self.longest - len(prompt))] for prompt in self.prompts]
        return torch.tensor(rows, dtype=torch.long, device=self.device).view(self.rows, width)

    def padding(self) -> Tensor:
        """How many columns each row lacks to the longest, ``(R,)``."""
        return torch.tensor([self.longest - len(prompt) for prompt in self.prompts], device=self.device)

    def padded(self) -> Tensor:
        """Prompts padded on the left, and all that was generated, ``(R, L + generated)``."""
        rows = [[0] * (self.longest - len(prompt)) + list(prompt) for prompt in self.prompts]
        return torch.cat([torch.tensor(rows, device=self.device), self.after(0)], dim=1)

    def cut(self, generated: int) -> None:
        """Go back to fewer generated tokens."""
        self.generated = generated

    def copied(self, generated: int) -> RowTokens:
        """A second set of rows with the first ``generated`` tokens."""
        copy = object.__new__(RowTokens)
        copy.__dict__.update(self.__dict__)
        copy._tail = self._tail[:, : generated + 1].clone()
        copy.generated = generated
        return copy
