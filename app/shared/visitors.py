"""Who a page is shown to: an account, or else the reviewer's name or, where none was given, a key of the browser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.requests import HTTPConnection

from db.accounts import AccountRecord
from db.projects import ProjectRecord
from db.scope import NOWHERE, Scope, counted_to, in_project

NAME_COOKIE = "coft-reviewer"
KEY_COOKIE = "coft-browser"
LONGEST_NAME = 200
_KEY = re.compile(r"[0-9a-f]{32}")
_NAMED, _KEYED, _ACCOUNT = "name:", "browser:", "account:"

SCOPE_KEY = "coft.visitor"
"""Where a request's scope holds whom the accounts say that it comes from."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Whom a page is shown to."""

    name: str = ""
    key: str = ""
    account: AccountRecord | None = None
    project: ProjectRecord | None = None
    bound: bool = False
    by_token: bool = False

    @property
    def scope(self) -> Scope:
        """What of the store the visitor sees."""
        if self.account is None:
            return None
        return NOWHERE if self.project is None else self.project.id

    @property
    def owners(self) -> tuple[str, ...]:
        """As whom a visitor owns jobs: by name, and by what was begun in this browser before one was given."""
        if self.account is not None:
            return (f"{_ACCOUNT}{self.account.name}",)
        named = (f"{_NAMED}{self.name}",) if self.name else ()
        return (*named, f"{_KEYED}{self.key}") if self.key else named

    @property
    def owner(self) -> str | None:
        """As whom a visitor begins jobs; None for one who is neither named nor told apart."""
        return next(iter(self.owners), None)


def visitor_of(cookies: Mapping[str, str]) -> Visitor:
    """The visitor that the cookies of a request tell of; what is damaged counts as nothing."""
    name = " ".join(unquote(cookies.get(NAME_COOKIE, "")).split())[:LONGEST_NAME].rstrip()
    key = cookies.get(KEY_COOKIE, "")
    return Visitor(name, key if _KEY.fullmatch(key) else "")


def visitor_asking(connection: HTTPConnection) -> Visitor:
    """Whom a request comes from: the account, on a server that has them; elsewhere what its cookies tell."""
    signed_in = connection.scope.get(SCOPE_KEY)
    return signed_in if isinstance(signed_in, Visitor) else visitor_of(connection.cookies)


def share_of(connection: HTTPConnection) -> str:
    """Whose share a request takes: the account's, and else that of its address, which cookies cannot vary."""
    visitor = visitor_asking(connection)
    if visitor.account is not None:
        return visitor.owner or ""
    return "" if connection.client is None else connection.client.host


_present: ContextVar[Visitor | None] = ContextVar("visitor", default=None)


@contextmanager
def answering(visitor: Visitor | None) -> Iterator[None]:
    """While a request is answered, what is begun belongs to its visitor; None for what no page has asked for.

    On a server with accounts visitors see only their present project, and what they make goes there and is theirs.
    """
    token = _present.set(visitor)
    try:
        if visitor is None or visitor.account is None:
            yield
            return
        with in_project(visitor.scope), counted_to(visitor.account.id):
            yield
    finally:
        _present.reset(token)


def present() -> Visitor | None:
    """The visitor who is being answered; None on the command line, and for programs."""
    return _present.get()


def present_account() -> AccountRecord | None:
    """The account that is being answered; None on the command line, and on a server without accounts."""
    visitor = _present.get()
    return None if visitor is None else visitor.account


def is_own(owner: str | None) -> bool:
    """Whether something belongs to whoever is being answered; what nobody owns is everybody's; programs may do all."""
    visitor = present()
    return visitor is None or owner is None or owner in visitor.owners


def owner_words(owner: str | None) -> str:
    """An owner in a sentence; the key of a browser is shown to nobody."""
    for prefix in (_NAMED, _ACCOUNT):
        if owner is not None and owner.startswith(prefix):
            return owner.removeprefix(prefix)
    return "somebody in another browser"
