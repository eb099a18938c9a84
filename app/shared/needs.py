"""What it takes to do something on a server with accounts, declared where it is done.

Each role may do what those before it may: a viewer reads and exports, a reviewer audits and judges, a lead also
starts long work over many prompts and manages what it needs, and an admin also manages accounts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from db.accounts import Role

Call = TypeVar("Call", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Need:
    """What it takes to do something, and whether the trail has it; nobody may do what has no role."""

    role: Role | None
    trailed: bool = True

    def allows(self, role: Role) -> bool:
        """Whether an account of a role may do it."""
        # Commands are declared without waiting for the store's library.
        from db.accounts import ROLES

        return self.role is not None and ROLES.index(role) >= ROLES.index(self.role)


READ, EXPORT = Need("viewer", trailed=False), Need("viewer")
LOOK, WORK = Need("reviewer", trailed=False), Need("reviewer")
LEAD, ADMIN = Need("lead"), Need("admin")
NOBODY = Need(None)


def needs(need: Need) -> Callable[[Call], Call]:
    """Declare what a handler takes, where that differs from working on its page."""

    def declared(call: Call) -> Call:
        call.need = need  # pyrefly: ignore[missing-attribute]
        return call

    return declared
