"""Commands for accounts and tokens, and the trail of who did what."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from app.accounts.disk import PARTS, AccountDisk, DiskService, DiskUse, amount, disk_sentence, parts_words
from app.accounts.passwords import ONE_TIME, OneTimePassword
from app.accounts.projects import ProjectService, ProjectView
from app.accounts.service import AccountService, NewToken
from app.shared.commands import Choices
from app.shared.errors import ServiceError
from app.shared.files import to_csv, write_text
from app.shared.needs import READ
from app.shared.operations import Json, command, operation
from app.shared.visitors import present
from app.shared.wiring import Services
from db.accounts import ROLES, AccountRecord, SignInRecord, TokenRecord
from db.projects import DEFAULT_NAME
from db.trail import TrailRecord, TrailRepository
from db.verdicts import Tombstone, first_break

RoleOption = Annotated[str, Choices(ROLES)]


def _password() -> str:
    """A password from the terminal, typed twice, or the first line of standard input where that is not a terminal."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise ServiceError("The password was typed differently the second time; nothing was changed.")
    return password


def _told(record: Any, **names: str) -> Json:
    """Attributes of a record by the names that JSON has for them."""
    values = {name: getattr(record, attribute) for name, attribute in names.items()}
    return {name: it.isoformat() if isinstance(it, datetime) else it for name, it in values.items()}


def _account_json(account: AccountRecord) -> Json:
    moments = {name: name for name in ("created_at", "disabled_at", "signed_in_at")}
    return _told(account, name="name", role="role", provider="issuer", **moments)


def _print_account(account: AccountRecord) -> None:
    state = "" if account.disabled_at is None else f", disabled since {account.disabled_at:%Y-%m-%d}"
    by = "" if account.issuer is None else f", signed in by {account.issuer}"
    print(f"{account.name}: {account.role}{by}{state}")


def _print_accounts(accounts: Sequence[AccountDisk]) -> None:
    for one in accounts:
        _print_account(one.account)
        if one.parts:
            print(f"    {amount(one.total)} in the store: {parts_words(one.parts)}")
    if not accounts:
        print("There is no account yet; add one: python -m app accounts add NAME --role admin")


@command("accounts add", json=_account_json, text=_print_account)
def add_account(
    wired: Services, name: str, *, role: RoleOption = "reviewer", project: str = DEFAULT_NAME
) -> AccountRecord:
    """Add an account; its password is asked for, or read as the first line of standard input.

    Args:
        name: what signs its verdicts; it cannot be changed
        role: what it may do; each role may do what those before it may
        project: the project that it becomes a member of; empty for none
    """
    return wired[AccountService].add(name, role, _password(), project)


def _one_time_json(made: OneTimePassword) -> Json:
    return {**_account_json(made.account), "password": made.password}


def _print_one_time(made: OneTimePassword) -> None:
    print(made.password)
    print(
        f"{made.account.name} signs in once with it, within {ONE_TIME.days} days, and then chooses another. It is "
        "shown this once, and stored nowhere."
    )


@operation(command="accounts invite", json=_one_time_json, text=_print_one_time)
def invite_account(
    wired: Services, name: str, role: RoleOption = "reviewer", project: str = DEFAULT_NAME
) -> OneTimePassword:
    """Add an account with a password for one sign-in, at which its owner chooses another.

    Args:
        name: What signs its verdicts; it cannot be changed.
        role: What it may do; each role may do what those before it may.
        project: The project that it becomes a member of; empty for none.

    Returns:
        The account, and the password, which is shown this once.
    """
    return wired[AccountService].invite(name, role, project)


@operation(command="accounts reset", json=_one_time_json, text=_print_one_time)
def reset_password(wired: Services, name: str) -> OneTimePassword:
    """Give an account a password for one sign-in, at which its owner chooses another, and sign its browsers out.

    Args:
        name: The account.

    Returns:
        The account, and the password, which is shown this once.
    """
    return wired[AccountService].reset_password(name)


@operation(
    command="accounts list",
    json=lambda accounts: [{**_account_json(one.account), "stored_bytes": one.total} for one in accounts],
    text=_print_accounts,
)
def list_accounts(wired: Services) -> Sequence[AccountDisk]:
    """List all accounts with their roles, and with what they have made takes in the store.

    Returns:
        accounts (name, role, provider, created_at, disabled_at, signed_in_at, stored_bytes) by name
    """
    return wired[DiskService].use().accounts


def _disk_json(use: DiskUse) -> Json:
    return {
        "store_bytes": use.store,
        "store_limit": use.store_limit,
        "account_limit": use.account_limit,
        "accounts": [
            {
                "name": one.account.name,
                "bytes": one.total,
                "kinds": {PARTS[table]: size for table, size in one.parts.items()},
            }
            for one in use.accounts
        ],
        "others": use.others,
    }


def _print_disk(use: DiskUse) -> None:
    print(disk_sentence(use))
    for one in sorted(use.accounts, key=lambda one: -one.total):
        print(f"{amount(one.total):>12}  {one.account.name}{': ' if one.parts else ''}{parts_words(one.parts)}")


@operation(command="accounts disk", json=_disk_json, text=_print_disk)
def disk_use(wired: Services) -> DiskUse:
    """Say what the store takes on the disk, and how much of it each account has made.

    Returns:
        store_bytes, store_limit, account_limit (bytes; 0 is none), accounts (name, bytes, kinds), and others: bytes
        that are counted to nobody, which were stored before accounts were counted or on a command line, or are shared.
    """
    return wired[DiskService].use()


@operation(command="accounts role", json=_account_json, text=_print_account)
def change_role(wired: Services, name: str, role: RoleOption) -> AccountRecord:
    """Give an account another role, which holds at once.

    Args:
        name: The account.
        role: Its new role.

    Returns:
        The account.
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


@operation(command="accounts disable", json=_account_json, text=_print_account)
def disable_account(wired: Services, name: str) -> AccountRecord:
    """Let an account in no longer; what it wrote stays.

    Args:
        name: The account.

    Returns:
        The account.
    """
    return wired[AccountService].disable(name)


@operation(command="accounts enable", json=_account_json, text=_print_account)
def enable_account(wired: Services, name: str) -> AccountRecord:
    """Let a disabled account in again.

    Args:
        name: The account.

    Returns:
        The account.
    """
    return wired[AccountService].disable(name, disabled=False)


def _token_json(token: TokenRecord) -> Json:
    moments = {name: name for name in ("created_at", "expires_at", "used_at", "revoked_at")}
    return _told(token, number="id", label="label", **moments)


def _print_token(made: NewToken) -> None:
    print(made.token)
    print("The token is shown this once, and stored nowhere. Programs send it as: Authorization: Bearer TOKEN")


@command("accounts token", json=lambda made: {**_token_json(made.record), "token": made.token}, text=_print_token)
def add_token(wired: Services, name: str, *, label: str, days: int | None = 365, only: str = "") -> NewToken:
    """Make a token by which programs ask in an account's name.

    Args:
        name: the account
        label: what the token is for
        days: for how many days it holds
        only: the one project that it opens (default: all of the account's)
    """
    return wired[AccountService].add_token(name, label, days, only)


def _print_tokens(tokens: Sequence[TokenRecord]) -> None:
    for token in tokens:
        used = "never used" if token.used_at is None else f"last used {token.used_at:%Y-%m-%d}"
        until = "" if token.expires_at is None else f", valid until {token.expires_at:%Y-%m-%d}"
        print(f"{token.id:>4}  {token.label}: {'revoked' if token.revoked_at else used}{until}")


@operation(command="accounts tokens", json=lambda tokens: [_token_json(token) for token in tokens], text=_print_tokens)
def list_tokens(wired: Services, name: str) -> Sequence[TokenRecord]:
    """List the tokens of an account, without what they say.

    Args:
        name: The account.

    Returns:
        tokens (number, label, created_at, expires_at, used_at, revoked_at), oldest first
    """
    return wired[AccountService].tokens(name)


@operation(command="accounts revoke", json=lambda _: None)
def revoke_token(wired: Services, name: str, number: int) -> str:
    """Revoke a token.

    Args:
        name: The account.
        number: Number of the token, as the list of tokens has it.

    Returns:
        Nothing.
    """
    wired[AccountService].revoke_token(name, number)
    return f"Token {number} is revoked."


_NAMES = (("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("Chrome", "Chrome"), ("Safari", "Safari"))
_SYSTEMS = (
    ("Android", "Android"), ("iPhone", "iOS"), ("iPad", "iOS"), ("Windows", "Windows"), ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)  # fmt: skip


def browser_words(said: str | None) -> str:
    """A browser in a few words, by what it calls itself."""
    if not said:
        return ""
    name = next((shown for mark, shown in _NAMES if f"{mark}/" in said), "")
    system = next((shown for mark, shown in _SYSTEMS if mark in said), "")
    return " on ".join(part for part in (name, system) if part) or said.partition(" ")[0][:60]


def _sign_ins_json(found: Sequence[SignInRecord]) -> list[Json]:
    moments = {"begun_at": "created_at", "used_at": "last_used_at", "ends_at": "expires_at"}
    return [_told(one, number="id", address="address", browser="browser", **moments) for one in found]


def _print_sign_ins(found: Sequence[SignInRecord]) -> None:
    for one in found:
        known = ", ".join(part for part in (browser_words(one.browser), one.address or "") if part)
        print(f"{one.id:>4}  since {one.created_at:%Y-%m-%d %H:%M}, used {one.last_used_at:%Y-%m-%d %H:%M}  {known}")
    if not found:
        print("No active sign-ins.")


@operation(need=READ, command="accounts sign-ins", json=_sign_ins_json, text=_print_sign_ins)
def list_sign_ins(wired: Services, name: str = "") -> Sequence[SignInRecord]:
    """List where an account is signed in with a browser.

    Args:
        name: The account; empty is the one that asks. Those of others an admin alone sees.

    Returns:
        sign-ins (number, begun_at, used_at, ends_at, address, browser), the newest first
    """
    accounts = wired[AccountService]
    return accounts.sign_ins(accounts.own_or_any(name))


@operation(need=READ, command="accounts sign-out", json=lambda count: {"ended": count})
def end_sign_ins(wired: Services, name: str = "", number: int | None = None) -> int:
    """Sign browsers of an account out. Of one's own a program does so, by a token; browsers have a page for it.

    Args:
        name: The account; empty is the one that asks. Those of others an admin alone ends.
        number: Number of the one sign-in, as the list of sign-ins has it; none ends all.

    Returns:
        ended, how many there were
    """
    accounts = wired[AccountService]
    account, visitor = accounts.own_or_any(name), present()
    own = visitor is not None and visitor.account is not None and visitor.account.id == account.id
    if own and visitor is not None and not visitor.by_token:
        raise ServiceError("End your own sign-ins on the page 'Where you are signed in', in your account's menu.")
    return accounts.end_sign_ins(account, number)


def _project_json(view: ProjectView) -> Json:
    members = [account.name for account in view.members]
    return {**_told(view.record, name="name", created_at="created_at"), "members": members}


def _print_project(view: ProjectView) -> None:
    members = ", ".join(account.name for account in view.members) or "no members"
    print(f"{view.record.name}: {members}")


def _print_projects(views: Sequence[ProjectView]) -> None:
    for view in views:
        _print_project(view)


@operation(command="projects list", json=lambda views: [_project_json(view) for view in views], text=_print_projects)
def list_projects(wired: Services) -> Sequence[ProjectView]:
    """List all projects with their members.

    Returns:
        projects (name, created_at, members), the first one before the others by name
    """
    return wired[ProjectService].list()


@operation(command="projects add", json=_project_json, text=_print_project)
def add_project(wired: Services, name: str) -> ProjectView:
    """Make a project; whoever asks by an account becomes its first member.

    Args:
        name: Its name.

    Returns:
        The project.
    """
    return wired[ProjectService].add(name)


@operation(command="projects rename", json=_project_json, text=_print_project)
def rename_project(wired: Services, name: str, new: str) -> ProjectView:
    """Give a project another name.

    Args:
        name: The project.
        new: Its new name.

    Returns:
        The project.
    """
    return wired[ProjectService].rename(name, new)


@operation(command="projects delete", json=lambda said: {"said": said})
def delete_project(wired: Services, name: str, repeated: str = "") -> str:
    """Delete a project with all that belongs to it; one that is not empty only where its name is given twice.

    Args:
        name: The project.
        repeated: Its name again; without it a project that is not empty stays, and what it has is said.

    Returns:
        What went, in a sentence.
    """
    return wired[ProjectService].delete(name, repeated)


def _print_left(found: Sequence[Tombstone]) -> None:
    print("\n".join(item.line for item in found) or "No project with verdicts has been deleted.")


@command("projects deleted", json=lambda found: [item.plain for item in found], text=_print_left)
def deleted_projects(wired: Services) -> Sequence[Tombstone]:
    """What verdict logs of deleted projects have left: session, entries, digest of the newest one, and when."""
    return wired[ProjectService].left()


@operation(command="projects join", json=_project_json, text=_print_project)
def add_member(wired: Services, name: str, account: str) -> ProjectView:
    """Let an account see a project; what it may do there is what its role allows.

    Args:
        name: The project.
        account: The account.

    Returns:
        The project.
    """
    return wired[ProjectService].add_member(name, account)


@operation(command="projects leave", json=_project_json, text=_print_project)
def remove_member(wired: Services, name: str, account: str) -> ProjectView:
    """Let an account see a project no longer; what it made there stays.

    Args:
        name: The project.
        account: The account.

    Returns:
        The project.
    """
    return wired[ProjectService].remove_member(name, account)


@dataclass(frozen=True, slots=True)
class TrailCheck:
    """Whether the trail is as it was written; the newest digest, kept elsewhere, shows that none is missing."""

    entries: int
    head: str
    whole: bool
    sentence: str


TRAIL_COLUMNS = ("entry", "at", "actor", "action", "subject", "outcome", "address", "previous", "digest")


def _trail_json(entries: Sequence[TrailRecord]) -> list[Json]:
    return [{**entry.content, "previous": entry.previous, "digest": entry.digest} for entry in entries]


def _print_trail(entries: Sequence[TrailRecord]) -> None:
    for entry in entries:
        who, what = entry.actor or "(command line)", f"{entry.action} {entry.subject}".strip()
        print(f"{entry.entry:>6}  {entry.created_at:%Y-%m-%d %H:%M:%S}  {who}: {what} ({entry.outcome})")
    if not entries:
        print("The trail is empty.")


@command("trail list", json=_trail_json, text=_print_trail)
def show_trail(
    wired: Services, *, account: str | None = None, newest: Annotated[int, Ge(1)] = 100
) -> Sequence[TrailRecord]:
    """Who did what, oldest first.

    Args:
        account: only what this account did
        newest: at most so many, the newest of all
    """
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


@command("trail verify", json=asdict, text=_print_check, code=lambda check: 0 if check.whole else 1)
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
    return f"Written: {write_trail(entries, file)} ({len(entries)} entries)"


def write_trail(entries: Sequence[TrailRecord], file: Path) -> Path:
    """Write entries of the trail to a .csv or .json file."""
    if file.suffix not in (".csv", ".json"):
        raise ServiceError(f"{file.name} ends in neither .csv nor .json; name the file so.")
    as_json = json.dumps(_trail_json(entries), ensure_ascii=False, indent=1)
    return write_text(file, to_csv(TRAIL_COLUMNS, _trail_json(entries)) if file.suffix == ".csv" else as_json)


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
