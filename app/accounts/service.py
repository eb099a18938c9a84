"""Accounts: passwords, browsers that are signed in, tokens of programs, and how often one may try.

Nothing that lets somebody in is stored as it is: of passwords the store has argon2id hashes, of tokens and of what
cookies hold SHA-256 digests, which suffice for random values of 256 bits.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import BoundedSemaphore
from typing import TYPE_CHECKING

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError

from app.accounts.attempts import Attempts, SignInError
from app.accounts.passwords import LONGEST_PASSWORD, ONE_TIME, OneTimePassword, one_time_password, usable
from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.visitors import present_account
from app.shared.wiring import Services
from db.accounts import (
    ROLES,
    AccountRecord,
    AccountsRepository,
    Role,
    SignInRecord,
    SignInsRepository,
    TokenRecord,
    TokensRepository,
)
from db.projects import DEFAULT_NAME, ProjectRecord, ProjectsRepository
from db.trail import TrailFields, TrailRepository
from db.types import ConflictError, NotFoundError, utc_now

if TYPE_CHECKING:
    from app.accounts.provider import Person

LONGEST_NAME = 100
LONGEST_LABEL = 200
_NAME = re.compile(r"[\w.@'’+-]+(?: [\w.@'’+-]+)*")
TOKEN = "coft_"
"""What tokens begin with, so that one that was published by mistake is recognised."""

MINUTE = timedelta(minutes=1)
HASHES_AT_ONCE = 2
"""Each takes 64 MiB while it is computed."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made; its text is shown this once."""

    token: str
    record: TokenRecord


class AccountService:
    """Creates accounts, lets them in, and says who a request comes from."""

    def __init__(self, services: Services, hasher: PasswordHasher | None = None) -> None:
        self._accounts, self._tokens = services[AccountsRepository], services[TokensRepository]
        self._sign_ins, self._trail = services[SignInsRepository], services[TrailRepository]
        self._projects = services[ProjectsRepository]
        self._hours = services.settings.sign_in_hours
        self._idle = timedelta(minutes=services.settings.idle_minutes)
        self._hasher = hasher or PasswordHasher()
        self._hashing = BoundedSemaphore(HASHES_AT_ONCE)
        self._nobody = ""
        self.attempts = Attempts(self._sign_ins, self._trail)

    def add(self, name: str, role: str, password: str, project: str = DEFAULT_NAME) -> AccountRecord:
        """Create a local account."""
        cleaned = account_name(name)
        return self._added(cleaned, role, usable(password, cleaned), project)

    def invite(self, name: str, role: str, project: str = DEFAULT_NAME) -> OneTimePassword:
        """Create a local account with a password for one sign-in, at which its owner chooses another."""
        password = one_time_password()
        account = self._added(account_name(name), role, password, project, utc_now() + ONE_TIME)
        return OneTimePassword(account, password)

    def _added(
        self, name: str, role: str, password: str, project: str, one_time_until: datetime | None = None
    ) -> AccountRecord:
        known, member = role_named(role), self._projects.named(project) if project else None
        account = self._accounts.add(name, known, self._hash(password), one_time_until=one_time_until)
        self.note("add an account", f"{account.name}, {role}")
        self._join(account, member)
        return account

    def _join(self, account: AccountRecord, project: ProjectRecord | None, address: str = "") -> None:
        if project is not None and self._projects.add_member(project.id, account.id):
            self.note("add a member", f"{account.name}, {project.name}", address=address)

    def list(self) -> Sequence[AccountRecord]:
        """All accounts by name."""
        return self._accounts.list()

    def named(self, name: str) -> AccountRecord:
        """The account of a name, in whatever case."""
        return self._accounts.named(" ".join(name.split()))

    def change_role(self, name: str, role: str) -> AccountRecord:
        """Give an account another role, which holds from its next request on."""
        account = self.named(name)
        changed = self._accounts.change_role(account.id, role_named(role))
        self.note("change a role", f"{account.name}, {role}")
        return changed

    def disable(self, name: str, disabled: bool = True) -> AccountRecord:
        """Disable an account with its browsers and programs, or enable it again."""
        account = self.named(name)
        changed = self._accounts.disable(account.id, disabled)
        self.note("disable an account" if disabled else "enable an account", account.name)
        return changed

    def change_password(self, name: str, password: str) -> AccountRecord:
        """Set a password; browsers of the account are signed out."""
        account = self._local(name)
        self._accounts.change_password(account.id, self._hash(usable(password, account.name)))
        self.note("change a password", account.name)
        return account

    def change_own_password(self, account: AccountRecord, chosen: str, address: str, browser: str = "") -> str:
        """Change the password of an account that gives its present one, and end all its sign-ins."""
        own = self._local(account.name)
        self._accounts.change_password(own.id, self._hash(usable(chosen, own.name)))
        self.note("change a password", own.name, address=address)
        return self.begin(own, address, browser=browser)

    def reset_password(self, name: str) -> OneTimePassword:
        """Give an account a password for one sign-in, and sign all its browsers out."""
        account = self._local(name)
        password = one_time_password()
        self._accounts.change_password(account.id, self._hash(password), utc_now() + ONE_TIME)
        self.note("reset a password", account.name)
        return OneTimePassword(self._accounts.get(account.id), password)

    def add_token(self, name: str, label: str, days: int | None, project: str = "") -> NewToken:
        """Make a token with which programs ask in an account's name."""
        account, said = self.named(name), " ".join(label.split())
        if not 0 < len(said) <= LONGEST_LABEL:
            raise ServiceError(f"Say what the token is for in at most {LONGEST_LABEL} characters.")
        if days is not None and not 0 < days <= 3650:
            raise ServiceError(f"A token cannot hold for {days} days; give 1 to 3650.")
        only = self._projects.named(project).id if project else None
        token = TOKEN + secrets.token_urlsafe(32)
        until = None if days is None else utc_now() + timedelta(days=days)
        record = self._tokens.add(account.id, said, digest_of(token), until, only)
        self.note("add a token", f"{account.name}, {said}")
        return NewToken(token, record)

    def tokens(self, name: str) -> Sequence[TokenRecord]:
        """An account's tokens, oldest first."""
        return self._tokens.list(self.named(name).id)

    def revoke_token(self, name: str, number: int) -> None:
        """Revoke a token of an account."""
        account = self.named(name)
        if number not in [token.id for token in self._tokens.list(account.id)]:
            raise NotFoundError(f"{account.name} has no token {number}; 'accounts tokens' lists them.")
        self._tokens.revoke(number)
        self.note("revoke a token", f"{account.name}, token {number}")

    def revoke_tokens(self, name: str) -> int:
        """Revoke all tokens of an account, and return how many were valid."""
        account = self.named(name)
        count = self._tokens.revoke_all(account.id)
        self.note("revoke all tokens", f"{account.name}, {count}")
        return count

    def sign_in(
        self, name: str, password: str, address: str, chosen: str = "", browser: str = ""
    ) -> tuple[AccountRecord, str]:
        """Sign a browser in by a password."""
        account = self._confirmed(" ".join(name.split())[:LONGEST_NAME], password, address, "sign in")
        if account.one_time_until is not None:
            self._choose(account, password, chosen, address)
        return account, self.begin(account, address, browser=browser)

    def confirm(self, account: AccountRecord, password: str, address: str) -> None:
        """Check the password of a signed-in account again; failed attempts count as for signing in."""
        try:
            self._confirmed(account.name, password, address, "confirm a password")
        except SignInError as error:
            if error.throttled:
                raise
            raise SignInError("That is not your present password; nothing was changed.") from error

    def _confirmed(self, asked: str, password: str, address: str, action: str) -> AccountRecord:
        keys = self.attempts.begin(action, asked, address)
        account = self._checked(asked, password)
        if account is None:
            self.note(action, asked, "refused", address)
            raise SignInError("This name and this password do not belong together.")
        self._sign_ins.succeeded(keys)
        return account

    def _choose(self, account: AccountRecord, password: str, chosen: str, address: str) -> None:
        """Put the password that the owner of an account chooses in the place of one for this sign-in only."""
        if not chosen:
            raise SignInError("This password holds for one sign-in. Choose your own now.", choose=True)
        try:
            if chosen == password:
                raise ServiceError("The new password is the one that holds for one sign-in only; choose another.")
            own = usable(chosen, account.name)
        except ServiceError as error:
            raise SignInError(str(error), choose=True) from error
        self._accounts.change_password(account.id, self._hash(own))
        self.note("change a password", account.name, address=address, actor=account.name)

    def begin(
        self, account: AccountRecord, address: str, how: str = "by password", id_token: str | None = None,
        browser: str = "",
    ) -> str:  # fmt: skip
        """Sign a browser in whose account is known, and give the secret for its cookie."""
        secret = secrets.token_urlsafe(32)
        until = utc_now() + timedelta(hours=self._hours)
        self._sign_ins.add(account.id, digest_of(secret), until, id_token, address, browser or None)
        self._accounts.mark_signed_in(account.id)
        self.note("sign in", how, address=address, actor=account.name)
        return secret

    def admit(
        self, person: Person, address: str, project: str = DEFAULT_NAME, browser: str = ""
    ) -> tuple[AccountRecord, str]:
        """Sign in a browser whose owner a provider confirms; the first sign-in makes the account."""
        account = self._accounts.at_provider(person.issuer, person.subject)
        try:
            first = self._projects.named(project) if account is None and project else None
            if account is None:
                account = self._accounts.add(person.name, person.role, None, person.issuer, person.subject)
                self.note("add an account", f"{account.name}, {account.role}", address=address, actor=account.name)
                self._join(account, first, address)
            elif account.disabled_at is not None:
                raise SignInError(f"The account {account.name} is disabled. Ask an admin of this server.")
            elif account.role != person.role:
                account = self._accounts.change_role(account.id, person.role)
                self.note("change a role", f"{account.name}, {account.role}", address=address, actor=account.name)
        except (ConflictError, NotFoundError, SignInError) as error:
            self.note("sign in", person.name, "refused", address)
            raise SignInError(str(error)) from error
        return account, self.begin(account, address, f"by {person.issuer}", person.id_token, browser)

    def sign_out(self, secret: str, address: str = "") -> str | None:
        """Sign a browser out, if it is signed in."""
        found = self.held(secret)
        if found is None:
            return None
        self._sign_ins.end(digest_of(secret))
        self.note("sign out", address=address, actor=self._accounts.get(found.account_id).name)
        return found.id_token

    def held(self, secret: str) -> SignInRecord | None:
        """The sign-in that a browser shows the secret of; None for none, or one whose time is over."""
        return self._sign_ins.holding(digest_of(secret), utc_now(), self._unused_since()) if secret else None

    def by_cookie(self, secret: str, used: bool = True) -> AccountRecord | None:
        """The account that a browser is signed in as; None for none, or one that is disabled."""
        found, now = self.held(secret), utc_now()
        if found is None or (account := self._enabled(found.account_id)) is None:
            return None
        if used and now - found.last_used_at >= MINUTE:
            # Once a minute: a page that asks often must not wait for the disk each time.
            self._sign_ins.mark_used(found.id, now)
        return account

    def own_or_any(self, name: str) -> AccountRecord:
        """The account that is being answered where no name is given; another one for an admin and the command line."""
        present = present_account()
        if not name.strip():
            if present is None:
                raise ServiceError("Nobody is signed in here; name an account.")
            return present
        if present is not None and present.name.lower() != " ".join(name.split()).lower() and present.role != "admin":
            raise ServiceError("Only admins may see and end sign-ins of other accounts; leave the name empty.")
        return self.named(name)

    def sign_ins(self, account: AccountRecord) -> Sequence[SignInRecord]:
        """Where an account is signed in, the newest sign-in first."""
        return self._sign_ins.list(account.id, utc_now(), self._unused_since())

    def end_sign_ins(self, account: AccountRecord, number: int | None = None, but: str = "", address: str = "") -> int:
        """Sign browsers of an account out."""
        ended = self._sign_ins.end_of(account.id, number, digest_of(but) if but else "")
        if number is not None and not ended:
            raise NotFoundError(f"{account.name} has no sign-in {number} that could be ended; it may be over.")
        self.note("end sign-ins", f"{account.name}, {ended}", address=address)
        return ended

    def _unused_since(self) -> datetime | None:
        return utc_now() - self._idle if self._idle else None

    def by_token(self, token: str) -> tuple[AccountRecord, int | None] | None:
        """The account in whose name a program asks, and the only project that it may ask about."""
        now = utc_now()
        found = self._tokens.holding(digest_of(token), now) if token.startswith(TOKEN) else None
        if found is None or (account := self._enabled(found.account_id)) is None:
            return None
        if found.used_at is None or _hour(found.used_at) != _hour(now):
            # Once an hour: a program that asks often must not wait for the disk each time.
            self._tokens.mark_used(found.id, _hour(now))
        return account, found.project_id

    def note(
        self, action: str, subject: str = "", outcome: str = "done", address: str = "", actor: str | None = None
    ) -> None:
        """Write to the trail what was done; without an actor it is the account that is being answered."""
        present = present_account()
        name = actor if actor is not None else "" if present is None else present.name
        self._trail.add(TrailFields(actor=name, action=action, subject=subject, outcome=outcome, address=address))

    def _checked(self, name: str, password: str) -> AccountRecord | None:
        """The account if the password is its own; for any other as much time is spent."""
        try:
            account = self._accounts.named(name)
        except NotFoundError:
            account = None
        stored = None if account is None else self._accounts.password_of(account.id)
        with self._hashing:
            if stored is None:
                self._nobody = self._nobody or self._hasher.hash(secrets.token_hex())
            try:
                self._hasher.verify(stored or self._nobody, password[:LONGEST_PASSWORD])
            except (VerifyMismatchError, InvalidHashError):
                return None
            if account is None or stored is None or account.disabled_at is not None or len(password) > LONGEST_PASSWORD:
                return None
            if account.one_time_until is not None and account.one_time_until <= utc_now():
                return None
            if self._hasher.check_needs_rehash(stored):
                self._accounts.rehash(account.id, self._hasher.hash(password))
        return account

    def _local(self, name: str) -> AccountRecord:
        """An account that has a password here."""
        account = self.named(name)
        if account.issuer is not None:
            raise ServiceError(f"{account.name} is signed in by {account.issuer} and has no password here.")
        return account

    def _enabled(self, key: int) -> AccountRecord | None:
        account = self._accounts.get(key)
        return account if account.disabled_at is None else None

    def _hash(self, password: str) -> str:
        with self._hashing:
            return self._hasher.hash(password)


def require_accounts(settings: Settings, accounts: AccountsRepository) -> None:
    """Refuse to serve with accounts while nobody could sign in as admin."""
    if settings.accounts == "on" and not accounts.has_admin():
        raise ServiceError(
            "Accounts are on, but there is no admin yet. Add one, then start the server again; the command asks for a "
            "password: python -m app accounts add NAME --role admin"
        )


def digest_of(secret: str) -> str:
    """What the store has of a random secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def role_named(role: str) -> Role:
    """A role by its name."""
    for known in ROLES:
        if known == role:
            return known
    raise ServiceError(f"There is no role {role!r}; choose {', '.join(ROLES)}.")


def account_name(name: str) -> str:
    """An account's name as it is stored."""
    cleaned = " ".join(name.split())
    if not _NAME.fullmatch(cleaned) or len(cleaned) > LONGEST_NAME:
        raise ServiceError(
            f"An account cannot be called {name!r:.60}: a name has only letters, digits, spaces and . _ @ ' + -, "
            f"and at most {LONGEST_NAME} of them."
        )
    return cleaned


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
