"""What the pages that run no script share: their forms, their policy, their style, and where a request comes from."""

from __future__ import annotations

import re
import secrets
from functools import cache

from starlette.datastructures import FormData
from starlette.requests import HTTPConnection, Request

from app.accounts.service import digest_of
from app.shared.web import ASSETS

COOKIE = "coft-sign-in"
"""Holds what signs a browser in; no script can read it."""
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
_DARK = re.compile(r"html:has\(> body\.dark\), \.dark \{(.*?)\n\}", re.DOTALL)
LARGEST_FORM = 20_000
LONGEST_BROWSER = 300


def address_of(connection: HTTPConnection) -> str:
    """Where a request comes from, as the web server sees it."""
    return "" if connection.client is None else connection.client.host


def browser_of(connection: HTTPConnection) -> str:
    """What a browser calls itself; empty where it says nothing."""
    return connection.headers.get("user-agent", "")[:LONGEST_BROWSER]


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
    """The style sheet of these pages, with the palettes of all others; the dark one for who asks the system for it."""
    base = (ASSETS / "base" / "base.css").read_text("utf-8")
    palettes = base[base.index(":root {") :].partition("\n}")[0] + "\n}\n"
    dark = _DARK.search(base)
    asked_for = (
        f"@media (prefers-color-scheme: dark) {{ :root {{{dark[1]}\n  color-scheme: dark; }} }}\n" if dark else ""
    )
    return palettes + asked_for + (ASSETS / "templates" / "accounts" / "sign_in.css").read_text("utf-8")
