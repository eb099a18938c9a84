"""What the pages that run no script share: their forms, their policy, their style, and where a request comes from."""

from __future__ import annotations

import secrets
from functools import cache
from typing import Literal

from starlette.datastructures import FormData
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from app.accounts.service import digest_of
from app.shared.web import ASSETS

COOKIE = "coft-sign-in"
"""Holds what signs a browser in; no script can read it."""
PREFIX = "__Host-"
"""Begins the names of cookies over TLS: browsers take those only from this very host, and send them nowhere else."""
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
LARGEST_FORM = 20_000
LONGEST_BROWSER = 300


def address_of(connection: HTTPConnection) -> str:
    """Where a request comes from, as the web server sees it."""
    return "" if connection.client is None else connection.client.host


def browser_of(connection: HTTPConnection) -> str:
    """What a browser calls itself; empty where it says nothing."""
    return connection.headers.get("user-agent", "")[:LONGEST_BROWSER]


def is_secure(connection: HTTPConnection) -> bool:
    """Whether the browser asked over TLS; a proxy on this computer says so in ``X-Forwarded-Proto``."""
    return connection.url.scheme == "https"


def cookie_name(connection: HTTPConnection, name: str) -> str:
    """What a cookie is called in this browser."""
    return f"{PREFIX}{name}" if is_secure(connection) else name


def cookie_of(connection: HTTPConnection, name: str) -> str:
    """What a cookie of this browser holds; empty where there is none."""
    return connection.cookies.get(cookie_name(connection, name), "")


def keep_cookie(
    answer: Response,
    connection: HTTPConnection,
    name: str,
    value: str,
    seconds: int | None = None,
    same_site: Literal["lax", "strict"] = "lax",
    for_scripts: bool = False,
) -> None:
    """Let a browser keep a cookie, over TLS for nothing but TLS."""
    answer.set_cookie(
        cookie_name(connection, name), value, max_age=seconds, secure=is_secure(connection), httponly=not for_scripts,
        samesite=same_site,
    )  # fmt: skip


def drop_cookie(answer: Response, connection: HTTPConnection, name: str) -> None:
    """Let a browser forget a cookie."""
    answer.delete_cookie(cookie_name(connection, name), secure=is_secure(connection), httponly=True, samesite="lax")


def form_token(secret: str) -> str:
    """What forms of a signed-in browser repeat; it tells nothing of the secret."""
    return digest_of(f"form:{secret}")


def is_same(given: object, kept: str) -> bool:
    """Whether a form repeats what it has to."""
    return bool(kept) and isinstance(given, str) and secrets.compare_digest(given.encode(), kept.encode())


async def read_form(request: Request) -> FormData:
    """What a form says; nothing where it says more than it can."""
    if int(request.headers.get("content-length", LARGEST_FORM + 1)) > LARGEST_FORM:
        return FormData()
    return await request.form(max_files=0, max_fields=10)


@cache
def style() -> str:
    """The style sheet of these pages, with the colours of all others, dark where the system is."""
    base = (ASSETS / "base" / "base.css").read_text("utf-8")
    palettes = base[base.index(":root {") :].partition("\n}")[0] + "\n}\n"
    return palettes + (ASSETS / "templates" / "accounts" / "sign_in.css").read_text("utf-8")
