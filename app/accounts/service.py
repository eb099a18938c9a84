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

from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.visitors import present_account
from app.shared.wiring import Services
from db.accounts import ROLES, AccountRecord, AccountsRepository, Role, SignInsRepository, TokenRecord, TokensRepository
from db.trail import TrailFields, TrailRepository
from db.types import ConflictError, NotFoundError, utc_now

if TYPE_CHECKING:
    from app.accounts.provider import Person

SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 1000
LONGEST_NAME = 100
LONGEST_LABEL = 200
_NAME = re.compile(r"[\w.@'’+-]+(?: [\w.@'’+-]+)*")
TOKEN = "coft_"
"""What tokens begin with, so that one that was published by mistake is recognised."""

WINDOW = timedelta(minutes=15)
PER_ACCOUNT, PER_ADDRESS = 8, 30
"""Attempts to sign in within the window: under one name, and from one address."""

HASHES_AT_ONCE = 2
"""Each takes 64 MiB while it is computed."""


class SignInError(ServiceError):
    """A sign-in that is refused.

    Attributes:
        throttled: Whether there were too many attempts, so that this one was not looked at.
    """

    def __init__(self, sentence: str, throttled: bool = False) -> None:
        super().__init__(sentence)
        self.throttled = throttled


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made; its text is shown this once.

    Attributes:
        token: The text.
        record: What is stored of it.
    """

    token: str
    record: TokenRecord


class AccountService:
    """Creates accounts, lets them in, and says who a request comes from."""

    def __init__(
        self,
        accounts: AccountsRepository,
        tokens: TokensRepository,
        sign_ins: SignInsRepository,
        trail: TrailRepository,
        hours: int,
        hasher: PasswordHasher | None = None,
    ) -> None:
        """Wire the service to the store.

        Args:
            accounts: The accounts.
            tokens: The tokens of programs.
            sign_ins: Browsers that are signed in.
            trail: Takes down what is done.
            hours: How long a browser stays signed in.
            hasher: Makes and checks hashes of passwords; None takes argon2id with the package's parameters (RFC 9106's
                second recommendation: 64 MiB, 3 passes, 4 lanes).
        """
        self._accounts = accounts
        self._tokens = tokens
        self._sign_ins = sign_ins
        self._trail = trail
        self._hours = hours
        self._hasher = hasher or PasswordHasher()
        self._hashing = BoundedSemaphore(HASHES_AT_ONCE)
        self._nobody = ""

    @classmethod
    def wired(cls, services: Services) -> AccountService:
        """Built from the program's services."""
        return cls(
            services[AccountsRepository],
            services[TokensRepository],
            services[SignInsRepository],
            services[TrailRepository],
            services.settings.sign_in_hours,
        )

    def add(self, name: str, role: str, password: str) -> AccountRecord:
        """Create a local account.

        Raises:
            ServiceError: The name, the role or the password cannot be taken.
            ConflictError: There is an account of this name.
        """
        cleaned, known = account_name(name), role_named(role)
        account = self._accounts.add(cleaned, known, self._hash(_usable(password, cleaned)))
        self.note("add an account", f"{account.name}, {role}")
        return account

    def list(self) -> Sequence[AccountRecord]:
        """All accounts by name."""
        return self._accounts.list()

    def named(self, name: str) -> AccountRecord:
        """The account of a name, in whatever case."""
        return self._accounts.named(" ".join(name.split()))

    def change_role(self, name: str, role: str) -> AccountRecord:
        """Give an account another role, which holds from its next request on.

        Raises:
            ServiceError: There is no such role.
            NotFoundError: There is no such account.
            ConflictError: No admin would be left.
        """
        account = self.named(name)
        self._accounts.change_role(account.id, role_named(role))
        self.note("change a role", f"{account.name}, {role}")
        return self._accounts.get(account.id)

    def disable(self, name: str, disabled: bool = True) -> AccountRecord:
        """Let an account in no longer, nor its browsers and programs that are in; or let it in again."""
        account = self.named(name)
        self._accounts.disable(account.id, disabled)
        self.note("disable an account" if disabled else "enable an account", account.name)
        return self._accounts.get(account.id)

    def change_password(self, name: str, password: str) -> AccountRecord:
        """Set a password; browsers of the account are signed out.

        Raises:
            ServiceError: The password cannot be taken, or a provider signs the account in.
        """
        account = self.named(name)
        if account.issuer is not None:
            raise ServiceError(f"{account.name} is signed in by {account.issuer} and has no password here.")
        self._accounts.change_password(account.id, self._hash(_usable(password, account.name)))
        self.note("change a password", account.name)
        return account

    def add_token(self, name: str, label: str, days: int | None) -> NewToken:
        """Make a token by which programs ask in an account's name.

        Args:
            name: The account.
            label: What it is for.
            days: How long it holds; None is until it is revoked.

        Raises:
            ServiceError: The label says nothing or too much, or the days are no time to come.
        """
        account, said = self.named(name), " ".join(label.split())
        if not 0 < len(said) <= LONGEST_LABEL:
            raise ServiceError(f"Say what the token is for, in at most {LONGEST_LABEL} characters.")
        if days is not None and not 0 < days <= 3650:
            raise ServiceError(f"A token cannot hold for {days} days; give 1 to 3650.")
        token = TOKEN + secrets.token_urlsafe(32)
        until = None if days is None else utc_now() + timedelta(days=days)
        record = self._tokens.add(account.id, said, digest_of(token), until)
        self.note("add a token", f"{account.name}, {said}")
        return NewToken(token, record)

    def tokens(self, name: str) -> Sequence[TokenRecord]:
        """An account's tokens, oldest first."""
        return self._tokens.list(self.named(name).id)

    def revoke_token(self, name: str, number: int) -> None:
        """Take a token of an account back.

        Raises:
            NotFoundError: The account has none of this number.
        """
        account = self.named(name)
        if number not in [token.id for token in self._tokens.list(account.id)]:
            raise NotFoundError(f"{account.name} has no token {number}; 'accounts tokens' lists them.")
        self._tokens.revoke(number)
        self.note("revoke a token", f"{account.name}, token {number}")

    def sign_in(self, name: str, password: str, address: str) -> tuple[AccountRecord, str]:
        """Sign a browser in by a password.

        Args:
            name: The account, in whatever case.
            password: Its password.
            address: Where the request comes from.

        Returns:
            The account, and the secret that the browser's cookie holds.

        Raises:
            SignInError: Name and password do not belong together, or there were too many attempts; which of the two is
                wrong is not said.
        """
        asked = " ".join(name.split())[:LONGEST_NAME]
        keys = {f"account:{asked.lower()}": PER_ACCOUNT, f"address:{address}": PER_ADDRESS}
        if self._sign_ins.attempt(keys, utc_now() - WINDOW):
            minutes = int(WINDOW.total_seconds() // 60)
            raise SignInError(f"There were too many attempts to sign in. Wait {minutes} minutes.", throttled=True)
        account = self._checked(asked, password)
        if account is None:
            self.note("sign in", asked, "refused", address)
            raise SignInError("This name and this password do not belong together.")
        self._sign_ins.succeeded(keys)
        return account, self.begin(account, address)

    def begin(self, account: AccountRecord, address: str, how: str = "by password") -> str:
        """Sign a browser in whose account is known, and give the secret for its cookie."""
        secret = secrets.token_urlsafe(32)
        self._sign_ins.add(account.id, digest_of(secret), utc_now() + timedelta(hours=self._hours))
        self.note("sign in", how, address=address, actor=account.name)
        return secret

    def admit(self, person: Person, address: str) -> tuple[AccountRecord, str]:
        """Sign a browser in whose owner a provider vouches for; her first sign-in makes her account.

        Args:
            person: Whom the provider vouches for; her role follows the provider at each sign-in.
            address: Where the request comes from.

        Returns:
            The account, and the secret that the browser's cookie holds.

        Raises:
            SignInError: The account is disabled, another one has the name, or no admin would be left.
        """
        account = self._accounts.at_provider(person.issuer, person.subject)
        try:
            if account is None:
                account = self._accounts.add(person.name, person.role, None, person.issuer, person.subject)
                self.note("add an account", f"{account.name}, {account.role}", address=address, actor=account.name)
            elif account.disabled_at is not None:
                raise SignInError(f"The account {account.name} is disabled. Ask an admin of this server.")
            elif account.role != person.role:
                self._accounts.change_role(account.id, person.role)
                account = self._accounts.get(account.id)
                self.note("change a role", f"{account.name}, {account.role}", address=address, actor=account.name)
        except (ConflictError, SignInError) as error:
            self.note("sign in", person.name, "refused", address)
            raise SignInError(str(error)) from error
        return account, self.begin(account, address, f"by {person.issuer}")

    def sign_out(self, secret: str, address: str = "") -> None:
        """Sign a browser out; what signs nobody in is passed over."""
        if (account := self.by_cookie(secret)) is not None:
            self._sign_ins.end(digest_of(secret))
            self.note("sign out", address=address, actor=account.name)

    def by_cookie(self, secret: str) -> AccountRecord | None:
        """The account that a browser is signed in as; None for none, or one that is disabled."""
        found = self._sign_ins.holding(digest_of(secret), utc_now()) if secret else None
        return None if found is None else self._enabled(found.account_id)

    def by_token(self, token: str) -> AccountRecord | None:
        """The account in whose name a program asks; None for none, or one that is disabled."""
        now = utc_now()
        found = self._tokens.holding(digest_of(token), now) if token.startswith(TOKEN) else None
        if found is None or (account := self._enabled(found.account_id)) is None:
            return None
        if found.used_at is None or _hour(found.used_at) != _hour(now):
            # Once an hour: a program that asks often must not wait for the disk each time.
            self._tokens.mark_used(found.id, _hour(now))
        return account

    def note(
        self, action: str, subject: str = "", outcome: str = "done", address: str = "", actor: str | None = None
    ) -> None:
        """Take down what was done; without an actor it is whoever is being answered."""
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
            if account is None or stored is None or account.disabled_at is not None:
                return None
            if self._hasher.check_needs_rehash(stored):
                self._accounts.rehash(account.id, self._hasher.hash(password))
        return account

    def _enabled(self, key: int) -> AccountRecord | None:
        account = self._accounts.get(key)
        return account if account.disabled_at is None else None

    def _hash(self, password: str) -> str:
        with self._hashing:
            return self._hasher.hash(password)


def require_accounts(settings: Settings, accounts: AccountsRepository) -> None:
    """Refuse to serve with accounts while nobody could sign in as admin.

    Raises:
        ServiceError: There is no account that may do everything.
    """
    if settings.accounts == "on" and not accounts.count_of("admin"):
        raise ServiceError(
            "Accounts are on and there is no admin yet, so nobody could let anybody in. Add one, which asks for a "
            "password, and start again: python -m app accounts add NAME --role admin"
        )


def digest_of(secret: str) -> str:
    """What the store has of a random secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def role_named(role: str) -> Role:
    """A role by its name.

    Raises:
        ServiceError: There is none of this name.
    """
    for known in ROLES:
        if known == role:
            return known
    raise ServiceError(f"There is no role {role!r}; choose {', '.join(ROLES)}.")


def account_name(name: str) -> str:
    """An account's name as it is stored.

    Raises:
        ServiceError: No account can be called that.
    """
    cleaned = " ".join(name.split())
    if not _NAME.fullmatch(cleaned) or len(cleaned) > LONGEST_NAME:
        raise ServiceError(
            f"An account cannot be called {name!r:.60}: a name has letters, digits, spaces and . _ @ ' + - alone, "
            f"and at most {LONGEST_NAME} of them."
        )
    return cleaned


def _usable(password: str, name: str) -> str:
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise ServiceError(
            f"The password has {len(password)} characters; give {SHORTEST_PASSWORD} to {LONGEST_PASSWORD:,}."
        )
    if password.lower() == name.lower() or len(set(password)) < 4:
        raise ServiceError("The password is too easily guessed; several words that do not belong together are better.")
    return password


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
