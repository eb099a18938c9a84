"""Commands for accounts and tokens, and the trail of who did what."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from app.accounts.service import AccountService, NewToken
from app.shared.commands import Choices
from app.shared.errors import ServiceError
from app.shared.files import to_csv, write_text
from app.shared.operations import Json, command, operation
from app.shared.wiring import Services
from db.accounts import ROLES, AccountRecord, TokenRecord
from db.trail import TrailRecord, TrailRepository
from db.verdicts import first_break

RoleOption = Annotated[str, Choices(ROLES)]


def _password() -> str:
    """A password from the terminal, typed twice, or the first line of standard input where that is no terminal.

    Raises:
        ServiceError: It was typed differently.
    """
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise ServiceError("The password was typed differently the second time; nothing was changed.")
    return password


def _account_json(account: AccountRecord) -> Json:
    return {
        "name": account.name,
        "role": account.role,
        "provider": account.issuer,
        "created_at": account.created_at.isoformat(),
        "disabled_at": None if account.disabled_at is None else account.disabled_at.isoformat(),
    }


def _print_account(account: AccountRecord) -> None:
    state = "" if account.disabled_at is None else f", disabled since {account.disabled_at:%Y-%m-%d}"
    by = "" if account.issuer is None else f", signed in by {account.issuer}"
    print(f"{account.name}: {account.role}{by}{state}")


def _print_accounts(accounts: Sequence[AccountRecord]) -> None:
    for account in accounts:
        _print_account(account)
    if not accounts:
        print("There is no account yet; add one: python -m app accounts add NAME --role admin")


@command("accounts add", json=_account_json, text=_print_account)
def add_account(wired: Services, name: str, *, role: RoleOption = "reviewer") -> AccountRecord:
    """Add an account; its password is asked for, or read as the first line of standard input.

    Args:
        name: what signs its verdicts; it cannot be changed
        role: what it may do; each role may do what those before it may
    """
    return wired[AccountService].add(name, role, _password())


def _accounts_json(accounts: Sequence[AccountRecord]) -> list[Json]:
    return [_account_json(account) for account in accounts]


@operation(command="accounts list", json=_accounts_json, text=_print_accounts)
def list_accounts(wired: Services) -> Sequence[AccountRecord]:
    """List all accounts with their roles.

    Returns:
        accounts (name, role, provider, created_at, disabled_at) by name
    """
    return wired[AccountService].list()


@command("accounts role", json=_account_json, text=_print_account)
def change_role(wired: Services, name: str, role: RoleOption) -> AccountRecord:
    """Give an account another role, which holds at once.

    Args:
        name: the account
        role: its new role
    """
    return wired[AccountService].change_role(name, role)


@command("accounts password", json=_account_json, text=_print_account)
def change_password(wired: Services, name: str) -> AccountRecord:
    """Set an account's password, and sign all its browsers out.

    Args:
        name: the account
    """
    wired[AccountService].named(name)
    return wired[AccountService].change_password(name, _password())


@command("accounts disable", json=_account_json, text=_print_account)
def disable_account(wired: Services, name: str) -> AccountRecord:
    """Let an account in no longer; what it wrote stays.

    Args:
        name: the account
    """
    return wired[AccountService].disable(name)


@command("accounts enable", json=_account_json, text=_print_account)
def enable_account(wired: Services, name: str) -> AccountRecord:
    """Let a disabled account in again.

    Args:
        name: the account
    """
    return wired[AccountService].disable(name, disabled=False)


def _token_json(token: TokenRecord) -> Json:
    moments = {name: getattr(token, name) for name in ("created_at", "expires_at", "used_at", "revoked_at")}
    said = {name: None if moment is None else moment.isoformat() for name, moment in moments.items()}
    return {"number": token.id, "label": token.label, **said}


def _print_token(made: NewToken) -> None:
    print(made.token)
    print("The token is shown this once, and stored nowhere. Programs send it as: Authorization: Bearer TOKEN")


@command("accounts token", json=lambda made: {**_token_json(made.record), "token": made.token}, text=_print_token)
def add_token(wired: Services, name: str, *, label: str, days: int | None = 365) -> NewToken:
    """Make a token by which programs ask in an account's name.

    Args:
        name: the account
        label: what the token is for
        days: for how many days it holds
    """
    return wired[AccountService].add_token(name, label, days)


def _print_tokens(tokens: Sequence[TokenRecord]) -> None:
    for token in tokens:
        used = "never used" if token.used_at is None else f"last used {token.used_at:%Y-%m-%d}"
        until = "" if token.expires_at is None else f", holds until {token.expires_at:%Y-%m-%d}"
        print(f"{token.id:>4}  {token.label}: {'revoked' if token.revoked_at else used}{until}")


@command("accounts tokens", json=lambda tokens: [_token_json(token) for token in tokens], text=_print_tokens)
def show_tokens(wired: Services, name: str) -> Sequence[TokenRecord]:
    """List the tokens of an account, without what they say.

    Args:
        name: the account
    """
    return wired[AccountService].tokens(name)


@command("accounts revoke")
def revoke_token(wired: Services, name: str, number: int) -> str:
    """Take a token back.

    Args:
        name: the account
        number: number of the token, as 'accounts tokens' lists it
    """
    wired[AccountService].revoke_token(name, number)
    return f"Token {number} holds no longer."


@dataclass(frozen=True, slots=True)
class TrailCheck:
    """Whether the trail holds together.

    Attributes:
        entries: How many it has.
        head: Digest of the newest one; empty without any. Kept elsewhere, it shows that none is missing at the end.
        whole: Whether each entry is as it was written, and none before the newest is missing.
        sentence: The finding in words.
    """

    entries: int
    head: str
    whole: bool
    sentence: str


TRAIL_COLUMNS = ("entry", "at", "actor", "action", "subject", "outcome", "address", "previous", "digest")


def _entry_json(entry: TrailRecord) -> Json:
    return {**entry.content, "previous": entry.previous, "digest": entry.digest}


def _trail_json(entries: Sequence[TrailRecord]) -> list[Json]:
    return [_entry_json(entry) for entry in entries]


def _print_trail(entries: Sequence[TrailRecord]) -> None:
    for entry in entries:
        who, what = entry.actor or "(command line)", f"{entry.action} {entry.subject}".strip()
        print(f"{entry.entry:>6}  {entry.created_at:%Y-%m-%d %H:%M:%S}  {who}: {what} ({entry.outcome})")
    if not entries:
        print("Nothing stands in the trail yet.")


@command("trail list", json=_trail_json, text=_print_trail)
def show_trail(wired: Services, *, account: str | None = None, newest: int = 100) -> Sequence[TrailRecord]:
    """Who did what, oldest first.

    Args:
        account: only what this account did
        newest: at most so many, the newest of all
    """
    if newest < 1:
        raise ServiceError("--newest must be at least 1.")
    return wired[TrailRepository].list(account, newest)


def check_trail(entries: Sequence[TrailRecord]) -> TrailCheck:
    """Whether the whole trail, oldest entry first, is as it was written."""
    broken = first_break([(entry.content, entry.previous, entry.digest) for entry in entries])
    said = f"The trail is whole: all {len(entries)} entries are as written." if broken is None else broken.reason
    return TrailCheck(len(entries), entries[-1].digest if entries else "", broken is None, said)


def _print_check(check: TrailCheck) -> None:
    print(check.sentence)
    if check.head:
        print(f"Digest of the newest entry: {check.head}")


@command("trail verify", json=lambda check: {
    "entries": check.entries, "head": check.head, "whole": check.whole, "sentence": check.sentence,
}, text=_print_check, holds=lambda check: check.whole)  # fmt: skip
def verify_trail(wired: Services) -> TrailCheck:
    """Check whether the trail is as it was written."""
    return check_trail(wired[TrailRepository].list())


@command("trail export")
def export_trail_file(wired: Services, file: Path) -> str:
    """Write the whole trail to a file, .csv or .json, with the digests that chain it.

    Args:
        file: where to
    """
    entries = wired[TrailRepository].list()
    if file.suffix not in (".csv", ".json"):
        raise ServiceError(f"{file.name} ends in neither .csv nor .json; name the file so.")
    as_json = json.dumps(_trail_json(entries), ensure_ascii=False, indent=1)
    write_text(file, to_csv(TRAIL_COLUMNS, _trail_json(entries)) if file.suffix == ".csv" else as_json)
    return f"Written: {file} ({len(entries)} entries)"


@operation(
    json=lambda found: {"entries": _trail_json(found[0]), "whole": found[1].whole, "sentence": found[1].sentence}
)
def export_trail(wired: Services) -> tuple[Sequence[TrailRecord], TrailCheck]:
    """Export the trail of who did what, with the digests that chain it; an admin alone may.

    Returns:
        entries (entry, at, actor, action, subject, outcome, address, previous, digest), whole, and a sentence.
    """
    entries = wired[TrailRepository].list()
    return entries, check_trail(entries)
