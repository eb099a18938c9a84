"""Who may use a server: accounts, their programs' tokens, browsers that are signed in, and attempts to sign in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

import sqlalchemy as sa

from db.tables import (
    Records,
    Store,
    add_row,
    change_row,
    columns,
    fields_in,
    numbered_table,
    one_writer,
)
from db.types import AnyText, ConflictError, NotFoundError, UtcDateTime, utc_now

Role = Literal["viewer", "reviewer", "lead", "admin"]
"""What an account may do; each role may do what those before it may."""

_ATTEMPTS_LOCK, _ACCOUNTS_LOCK = 0x61747470, 0x61636374

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


def _account() -> sa.ForeignKey:
    return sa.ForeignKey("accounts.id", ondelete="CASCADE")


accounts = numbered_table(
    "accounts",
    "account",
    *columns(AccountRecord),
    sa.Column("password", AnyText(), nullable=True),
    sa.UniqueConstraint("name"),
    sa.UniqueConstraint("issuer", "subject"),
    sa.CheckConstraint(f"role IN ({', '.join(repr(role) for role in ROLES)})", name="known_role"),
)

tokens = numbered_table(
    "account_tokens",
    "token",
    *columns(TokenRecord, account_id=_account()),
    sa.Index(None, "account_id"),
    sa.UniqueConstraint("digest"),
)

sign_ins = numbered_table(
    "account_sign_ins",
    "sign-in",
    *columns(SignInRecord, account_id=_account()),
    sa.Index(None, "account_id"),
    sa.UniqueConstraint("digest"),
)

attempts = numbered_table(
    "account_attempts",
    "attempt to sign in",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", AnyText, nullable=False),
    sa.Column("made_at", UtcDateTime, nullable=False),
)


_lowered_name = sa.func.lower(accounts.c.name, type_=AnyText())
_ADMINS = sa.select(accounts.c.id).where(accounts.c.role == "admin", accounts.c.disabled_at.is_(None)).limit(1)


class AccountsRepository(Records[AccountRecord]):
    """Keeps accounts; one that has signed something stays, and is disabled instead of deleted."""

    _table, _kind = accounts, AccountRecord
    _query = sa.select(*fields_in(AccountRecord, accounts)).order_by(accounts.c.name)

    def add(
        self, name: str, role: Role, password: str | None, issuer: str | None = None, subject: str | None = None,
        one_time_until: datetime | None = None,
    ) -> AccountRecord:  # fmt: skip
        """Store a new account."""
        told = {"name": name, "role": role, "password": password, "issuer": issuer, "subject": subject}
        with self._database.writing() as connection:
            one_writer(connection, _ACCOUNTS_LOCK)
            if connection.execute(sa.select(accounts.c.id).where(_lowered_name == name.lower())).first() is not None:
                raise ConflictError(f"There is an account {name!r} already; choose another name.")
            key = add_row(connection, accounts, **told, one_time_until=one_time_until, created_at=utc_now())
            return self._one(connection, key)

    def named(self, name: str) -> AccountRecord:
        """Return the account of a name, in whatever case."""
        found = self._found(_lowered_name == name.lower())
        if found is None:
            raise NotFoundError(f"There is no account {name!r}.")
        return found

    def at_provider(self, issuer: str, subject: str) -> AccountRecord | None:
        """Return the account of somebody whom a provider signs in; None if there is none yet."""
        return self._found(accounts.c.issuer == issuer, accounts.c.subject == subject)

    def list(self) -> Sequence[AccountRecord]:
        """Return all accounts by name."""
        return self._listed(self._query)

    def password_of(self, key: int) -> str | None:
        """Return the hash of an account's password; None where it has none."""
        return self._scalar(str, sa.select(accounts.c.password).where(accounts.c.id == key))

    def change_password(self, key: int, password: str, one_time_until: datetime | None = None) -> None:
        """Store the hash of a new password, and sign all browsers of the account out."""
        with self._database.writing() as connection:
            change_row(connection, accounts, key, password=password, one_time_until=one_time_until)
            connection.execute(sa.delete(sign_ins).where(sign_ins.c.account_id == key))

    def rehash(self, key: int, password: str) -> None:
        """Store the same password under newer parameters of its hash."""
        self._change(key, password=password)

    def change_role(self, key: int, role: Role) -> AccountRecord:
        """Give an account another role, which holds from its next request on."""
        with self._database.writing() as connection:
            was = self._one(connection, key)
            change_row(connection, accounts, key, role=role)
            if was.role == "admin" and was.disabled_at is None:
                self._require_admin(connection)
            return self._one(connection, key)

    def disable(self, key: int, disabled: bool = True) -> AccountRecord:
        """Disable an account from its next request on, or enable it again."""
        with self._database.writing() as connection:
            was = self._one(connection, key)
            change_row(connection, accounts, key, disabled_at=utc_now() if disabled else None)
            if disabled:
                connection.execute(sa.delete(sign_ins).where(sign_ins.c.account_id == key))
            if disabled and was.role == "admin":
                self._require_admin(connection)
            return self._one(connection, key)

    def mark_signed_in(self, key: int) -> None:
        """Note that an account signs in now."""
        self._change(key, signed_in_at=utc_now())

    def has_admin(self) -> bool:
        """Whether an admin could sign in."""
        return self._scalar(int, _ADMINS) is not None

    def _require_admin(self, connection: sa.Connection) -> None:
        # Two that change roles at once must not both rely on the other one's admin.
        one_writer(connection, _ACCOUNTS_LOCK)
        if connection.execute(_ADMINS).first() is None:
            raise ConflictError("No admin would be left who can sign in; make another account admin first.")


class TokensRepository(Records[TokenRecord]):
    """Keeps the tokens of programs by their digests."""

    _table, _kind = tokens, TokenRecord
    _query = sa.select(*fields_in(TokenRecord, tokens)).order_by(tokens.c.id)

    def add(
        self, account_id: int, label: str, digest: str, expires_at: datetime | None, project_id: int | None = None
    ) -> TokenRecord:
        """Store a new token."""
        told = {"account_id": account_id, "label": label, "digest": digest, "project_id": project_id}
        with self._database.writing() as connection:
            key = add_row(connection, tokens, **told, created_at=utc_now(), expires_at=expires_at)
            return self._one(connection, key)

    def list(self, account_id: int) -> Sequence[TokenRecord]:
        """Return an account's tokens, revoked ones too, oldest first."""
        return self._listed(self._query.where(tokens.c.account_id == account_id))

    def holding(self, digest: str, now: datetime) -> TokenRecord | None:
        """Return the token of a digest if it is valid at a moment."""
        valid = tokens.c.revoked_at.is_(None), sa.or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now)
        return self._found(tokens.c.digest == digest, *valid)

    def mark_used(self, key: int, now: datetime) -> None:
        """Note when a token was used."""
        self._change(key, used_at=now)

    def revoke_all(self, account_id: int) -> int:
        """Revoke all tokens of an account, and return how many were valid."""
        valid = sa.update(tokens).where(tokens.c.account_id == account_id, tokens.c.revoked_at.is_(None))
        return self._run(valid.values(revoked_at=utc_now()))

    def revoke(self, key: int) -> None:
        """Revoke a token, for good."""
        self._change(key, revoked_at=utc_now())


class SignInsRepository(Store):
    """Keeps which browsers are signed in, and attempts to sign in; all servers on one store share both."""

    def add(
        self, account_id: int, digest: str, expires_at: datetime, id_token: str | None = None,
        address: str | None = None, browser: str | None = None,
    ) -> None:  # fmt: skip
        """Sign a browser in, and forget those whose time is over."""
        now = utc_now()
        told = {"account_id": account_id, "digest": digest, "created_at": now, "expires_at": expires_at}
        told |= {"id_token": id_token, "address": address, "browser": browser}
        with self._database.writing() as connection:
            connection.execute(sa.delete(sign_ins).where(sign_ins.c.expires_at <= now))
            add_row(connection, sign_ins, **told)

    def holding(self, digest: str, now: datetime, unused_since: datetime | None = None) -> SignInRecord | None:
        """Return the sign-in of a digest if it is valid at a moment."""
        found = self._valid(sign_ins.c.digest == digest, now, unused_since)
        return found[0] if found else None

    def list(self, account_id: int, now: datetime, unused_since: datetime | None = None) -> Sequence[SignInRecord]:
        """Return the sign-ins of an account that are valid at a moment, the newest first."""
        return self._valid(sign_ins.c.account_id == account_id, now, unused_since)

    def _valid(
        self, wanted: sa.ColumnElement[bool], now: datetime, unused_since: datetime | None
    ) -> Sequence[SignInRecord]:
        query = sa.select(*fields_in(SignInRecord, sign_ins)).where(wanted, sign_ins.c.expires_at > now)
        if unused_since is not None:
            query = query.where(sa.func.coalesce(sign_ins.c.used_at, sign_ins.c.created_at) > unused_since)
        return self._read(SignInRecord, query.order_by(sign_ins.c.id.desc()))

    def mark_used(self, key: int, now: datetime) -> None:
        """Note when a sign-in was used; one that has ended meanwhile stays ended."""
        self._run(sa.update(sign_ins).where(sign_ins.c.id == key).values(used_at=now))

    def end(self, digest: str) -> None:
        """Sign a browser out."""
        self._run(sa.delete(sign_ins).where(sign_ins.c.digest == digest))

    def end_of(self, account_id: int, key: int | None = None, but: str = "") -> int:
        """Sign browsers of an account out, and return how many."""
        ended = sa.delete(sign_ins).where(sign_ins.c.account_id == account_id, sign_ins.c.digest != but)
        if key is not None:
            ended = ended.where(sign_ins.c.id == key)
        return self._run(ended)

    def attempt(self, limits: dict[str, int], since: datetime) -> Sequence[str]:
        """Note one attempt under each key, unless one of them has had too many.

        The attempt counts from its beginning, so that many at once do not evade the limit.
        """
        with self._database.writing() as connection:
            # Many at once must not all count before any of them is noted.
            one_writer(connection, _ATTEMPTS_LOCK)
            connection.execute(sa.delete(attempts).where(attempts.c.made_at <= since))
            query = (
                sa.select(attempts.c.key, sa.func.count()).where(attempts.c.key.in_(limits)).group_by(attempts.c.key)
            )
            counts: dict[str, int] = dict(connection.execute(query).tuples().all())
            full = [key for key, limit in limits.items() if counts.get(key, 0) >= limit]
            if not full:
                connection.execute(sa.insert(attempts), [{"key": key, "made_at": utc_now()} for key in limits])
            return full

    def succeeded(self, keys: Collection[str]) -> None:
        """Forget the attempts under these keys: the last one was right."""
        self._run(sa.delete(attempts).where(attempts.c.key.in_(keys)))
