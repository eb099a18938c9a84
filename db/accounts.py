"""Who may use a server: accounts, their programs' tokens, browsers that are signed in, and attempts to sign in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Index,
    Table,
    UniqueConstraint,
    delete,
    func,
    or_,
    select,
    update,
)  # fmt: skip
from sqlalchemy.exc import IntegrityError

from db.database import Database
from db.tables import METADATA, NEVER_REUSED, add_row, change_row, columns, field_values, fields_in, find, one_writer
from db.types import AnyText, ConflictError, NotFoundError, utc_now

Role = Literal["viewer", "reviewer", "lead", "admin"]
"""What an account may do; each role may do what those before it may."""

_ATTEMPTS_LOCK = 0x61747470

ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRecord:
    """Somebody who may use the server."""

    id: int
    name: str
    role: Role
    issuer: str | None
    subject: str | None
    created_at: datetime
    disabled_at: datetime | None
    signed_in_at: datetime | None = None
    one_time_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """What a program shows instead of a password."""

    id: int
    account_id: int
    label: str
    digest: str
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None
    project_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInRecord:
    """A browser that is signed in."""

    id: int
    account_id: int
    digest: str
    created_at: datetime
    expires_at: datetime
    id_token: str | None = None
    used_at: datetime | None = None
    address: str | None = None
    browser: str | None = None

    @property
    def last_used_at(self) -> datetime:
        """When it was used last, its beginning included."""
        return self.created_at if self.used_at is None else self.used_at


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """An attempt to sign in that did not succeed, or has not yet; the key names an account or an address."""

    id: int
    key: str
    made_at: datetime


def _account() -> ForeignKey:
    return ForeignKey("accounts.id", ondelete="CASCADE")


accounts = Table(
    "accounts",
    METADATA,
    *columns(AccountRecord),
    Column("password", AnyText(), nullable=True),
    UniqueConstraint("name"),
    UniqueConstraint("issuer", "subject"),
    CheckConstraint(f"role IN ({', '.join(repr(role) for role in ROLES)})", name="known_role"),
    info={"called": "account"},
    **NEVER_REUSED,
)

tokens = Table(
    "account_tokens",
    METADATA,
    *columns(TokenRecord, account_id=_account()),
    Index(None, "account_id"),
    UniqueConstraint("digest"),
    info={"called": "token"},
    **NEVER_REUSED,
)

sign_ins = Table(
    "account_sign_ins",
    METADATA,
    *columns(SignInRecord, account_id=_account()),
    Index(None, "account_id"),
    UniqueConstraint("digest"),
    info={"called": "sign-in"},
    **NEVER_REUSED,
)

attempts = Table(
    "account_attempts",
    METADATA,
    *columns(AttemptRecord),
    info={"called": "attempt to sign in"},
    **NEVER_REUSED,
)


class AccountsRepository:
    """Keeps accounts; one that has signed something stays, and is disabled instead of deleted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        name: str,
        role: Role,
        password: str | None,
        issuer: str | None = None,
        subject: str | None = None,
        one_time_until: datetime | None = None,
    ) -> AccountRecord:
        """Store a new account."""
        fields: dict[str, object] = {
            "name": name,
            "role": role,
            "password": password,
            "issuer": issuer,
            "subject": subject,
        }
        fields |= {"one_time_until": one_time_until, "signed_in_at": None}
        try:
            with self._database.writing() as connection:
                taken = select(accounts.c.id).where(func.lower(accounts.c.name, type_=AnyText()) == name.lower())
                if connection.execute(taken).first() is not None:
                    raise ConflictError(f"There is an account {name!r} already; choose another name.")
                key = add_row(connection, accounts, **fields, created_at=utc_now(), disabled_at=None)
        except IntegrityError as error:
            raise ConflictError(f"There is an account {name!r} already; choose another name.") from error
        return self.get(key)

    def get(self, key: int) -> AccountRecord:
        """Return the account with an id."""
        return self._one(f"with the id {key}", accounts.c.id == key)

    def named(self, name: str) -> AccountRecord:
        """Return the account of a name, in whatever case."""
        return self._one(repr(name), func.lower(accounts.c.name, type_=AnyText()) == name.lower())

    def at_provider(self, issuer: str, subject: str) -> AccountRecord | None:
        """Return the account of somebody whom a provider signs in; None if there is none yet."""
        found = self._list(accounts.c.issuer == issuer, accounts.c.subject == subject)
        return found[0] if found else None

    def list(self) -> Sequence[AccountRecord]:
        """Return all accounts by name."""
        return self._list()

    def password_of(self, key: int) -> str | None:
        """Return the hash of an account's password; None where it has none."""
        with self._database.reading() as connection:
            found: str | None = connection.scalar(select(accounts.c.password).where(accounts.c.id == key))
            return found

    def change_password(self, key: int, password: str, one_time_until: datetime | None = None) -> None:
        """Store the hash of a new password, and sign all browsers of the account out."""
        with self._database.writing() as connection:
            change_row(connection, accounts, key, password=password, one_time_until=one_time_until)
            connection.execute(delete(sign_ins).where(sign_ins.c.account_id == key))

    def rehash(self, key: int, password: str) -> None:
        """Store the same password under newer parameters of its hash."""
        with self._database.writing() as connection:
            change_row(connection, accounts, key, password=password)

    def change_role(self, key: int, role: Role) -> None:
        """Give an account another role, which holds from its next request on."""
        with self._database.writing() as connection:
            was = find(connection, accounts, key, lock=True)
            change_row(connection, accounts, key, role=role)
            if was.role == "admin" and was.disabled_at is None:
                self._require_admin(connection)

    def disable(self, key: int, disabled: bool = True) -> None:
        """Let an account do nothing from its next request on, or let it in again."""
        with self._database.writing() as connection:
            was = find(connection, accounts, key, lock=True)
            change_row(connection, accounts, key, disabled_at=utc_now() if disabled else None)
            if disabled:
                connection.execute(delete(sign_ins).where(sign_ins.c.account_id == key))
            if disabled and was.role == "admin":
                self._require_admin(connection)

    def mark_signed_in(self, key: int) -> None:
        """Note that an account signs in now."""
        with self._database.writing() as connection:
            change_row(connection, accounts, key, signed_in_at=utc_now())

    def count_of(self, role: Role) -> int:
        """How many accounts of a role are not disabled."""
        query = select(func.count()).where(accounts.c.role == role, accounts.c.disabled_at.is_(None))
        with self._database.reading() as connection:
            return int(connection.scalar(query) or 0)

    def _require_admin(self, connection: Connection) -> None:
        query = select(func.count()).where(accounts.c.role == "admin", accounts.c.disabled_at.is_(None))
        if not connection.scalar(query):
            raise ConflictError("No admin would be left who can sign in; make another account admin first.")

    def _one(self, what: str, *where: ColumnElement[bool]) -> AccountRecord:
        if not (found := self._list(*where)):
            raise NotFoundError(f"There is no account {what}.")
        return found[0]

    def _list(self, *where: ColumnElement[bool]) -> Sequence[AccountRecord]:
        query = select(*fields_in(AccountRecord, accounts)).where(*where).order_by(accounts.c.name)
        with self._database.reading() as connection:
            return [AccountRecord(**row._asdict()) for row in connection.execute(query)]


class TokensRepository:
    """Keeps the tokens of programs by their digests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, account_id: int, label: str, digest: str, expires_at: datetime | None, project_id: int | None = None
    ) -> TokenRecord:
        """Store a new token."""
        record = TokenRecord(
            id=0, account_id=account_id, label=label, digest=digest, created_at=utc_now(), expires_at=expires_at,
            used_at=None, revoked_at=None, project_id=project_id,
        )  # fmt: skip
        with self._database.writing() as connection:
            key = add_row(connection, tokens, **field_values(record, TokenRecord, ("id",)))
        return next(token for token in self.list(account_id) if token.id == key)

    def list(self, account_id: int) -> Sequence[TokenRecord]:
        """Return an account's tokens, revoked ones too, oldest first."""
        query = select(*fields_in(TokenRecord, tokens)).where(tokens.c.account_id == account_id).order_by(tokens.c.id)
        with self._database.reading() as connection:
            return [TokenRecord(**row._asdict()) for row in connection.execute(query)]

    def holding(self, digest: str, now: datetime) -> TokenRecord | None:
        """Return the token of a digest if it holds at a moment."""
        query = select(*fields_in(TokenRecord, tokens)).where(
            tokens.c.digest == digest,
            tokens.c.revoked_at.is_(None),
            or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now),
        )
        with self._database.reading() as connection:
            found = connection.execute(query).one_or_none()
        return None if found is None else TokenRecord(**found._asdict())

    def mark_used(self, key: int, now: datetime) -> None:
        """Note when a token was used."""
        with self._database.writing() as connection:
            change_row(connection, tokens, key, used_at=now)

    def revoke_all(self, account_id: int) -> int:
        """Take all tokens of an account back, and return how many held."""
        held = update(tokens).where(tokens.c.account_id == account_id, tokens.c.revoked_at.is_(None))
        with self._database.writing() as connection:
            return connection.execute(held.values(revoked_at=utc_now())).rowcount

    def revoke(self, key: int) -> None:
        """Take a token back, for good."""
        with self._database.writing() as connection:
            change_row(connection, tokens, key, revoked_at=utc_now())


class SignInsRepository:
    """Keeps which browsers are signed in, and attempts to sign in; all servers on one store share both."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        account_id: int,
        digest: str,
        expires_at: datetime,
        id_token: str | None = None,
        address: str | None = None,
        browser: str | None = None,
    ) -> None:
        """Sign a browser in, and forget those whose time is over."""
        now = utc_now()
        with self._database.writing() as connection:
            connection.execute(delete(sign_ins).where(sign_ins.c.expires_at <= now))
            told = {"account_id": account_id, "digest": digest, "created_at": now, "expires_at": expires_at}
            told |= {"id_token": id_token, "used_at": None, "address": address, "browser": browser}
            add_row(connection, sign_ins, **told)

    def holding(self, digest: str, now: datetime, unused_since: datetime | None = None) -> SignInRecord | None:
        """Return the sign-in of a digest if it holds at a moment."""
        found = self._list(sign_ins.c.digest == digest, now=now, unused_since=unused_since)
        return found[0] if found else None

    def list(self, account_id: int, now: datetime, unused_since: datetime | None = None) -> Sequence[SignInRecord]:
        """Return the sign-ins of an account that hold at a moment, the newest first."""
        return self._list(sign_ins.c.account_id == account_id, now=now, unused_since=unused_since)

    def _list(
        self, *where: ColumnElement[bool], now: datetime, unused_since: datetime | None
    ) -> Sequence[SignInRecord]:
        query = select(*fields_in(SignInRecord, sign_ins)).where(*where, sign_ins.c.expires_at > now)
        if unused_since is not None:
            query = query.where(func.coalesce(sign_ins.c.used_at, sign_ins.c.created_at) > unused_since)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(sign_ins.c.id.desc()))
            return [SignInRecord(**row._asdict()) for row in rows]

    def mark_used(self, key: int, now: datetime) -> None:
        """Note when a sign-in was used; one that has ended meanwhile stays ended."""
        with self._database.writing() as connection:
            connection.execute(update(sign_ins).where(sign_ins.c.id == key).values(used_at=now))

    def end(self, digest: str) -> None:
        """Sign a browser out."""
        with self._database.writing() as connection:
            connection.execute(delete(sign_ins).where(sign_ins.c.digest == digest))

    def end_of(self, account_id: int, key: int | None = None, but: str = "") -> int:
        """Sign browsers of an account out, and return how many."""
        ended = delete(sign_ins).where(sign_ins.c.account_id == account_id, sign_ins.c.digest != but)
        if key is not None:
            ended = ended.where(sign_ins.c.id == key)
        with self._database.writing() as connection:
            return connection.execute(ended).rowcount

    def attempt(self, limits: dict[str, int], since: datetime) -> Sequence[str]:
        """Note one attempt under each key, unless one of them has had too many.

        The attempt counts from its beginning, so that many at once are no way around the limit.
        """
        with self._database.writing() as connection:
            # Many at once must not all count before any of them is noted.
            one_writer(connection, _ATTEMPTS_LOCK)
            connection.execute(delete(attempts).where(attempts.c.made_at <= since))
            query = select(attempts.c.key, func.count()).where(attempts.c.key.in_(limits)).group_by(attempts.c.key)
            counts: dict[str, int] = dict(connection.execute(query).tuples().all())
            full = [key for key, limit in limits.items() if counts.get(key, 0) >= limit]
            if not full:
                for key in limits:
                    add_row(connection, attempts, key=key, made_at=utc_now())
            return full

    def succeeded(self, keys: Collection[str]) -> None:
        """Forget the attempts under these keys: the last one was right."""
        with self._database.writing() as connection:
            connection.execute(delete(attempts).where(attempts.c.key.in_(keys)))
