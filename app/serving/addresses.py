"""What an address names and is not there: one sentence for the page that it leads to."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.shared.wiring import Named, Page, Services
from db.types import NotFoundError

LONGEST_SHOWN = 40
LONGEST_NUMBER = 18
"""Digits of a number that a store can have."""


class Addresses:
    """Looks up what the pages' addresses name."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._pages = {page.path: page for page in services.pages}

    @classmethod
    def wired(cls, services: Services) -> Addresses:
        """Built from the program's services."""
        return cls(services)

    @property
    def routes(self) -> list[Route]:
        """Where a page asks about its own address."""
        return [Route("/address/{page:path}", self.answer)]

    def answer(self, request: Request) -> Response:
        """What the asked page's address names and is not there."""
        page = self._pages.get(request.path_params["page"])
        missing = [] if page is None else list(self.missing(page, request.query_params))
        return JSONResponse({"missing": missing}, headers={"Cache-Control": "no-store"})

    def missing(self, page: Page, given: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """For each thing that is not there: what is said, and which page lists what is there."""
        for named in page.names:
            for text in given.get(named.parameter, "").split(","):
                value = text.strip()
                if value and not self._is_there(named, value):
                    shown = value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}…"
                    yield {
                        "said": f"There is no {named.what} {shown}. It may have been deleted.",
                        "page": self._pages[named.lists].title if named.lists in self._pages else "",
                        "address": f"./{named.lists}",
                    }

    def _is_there(self, named: Named, value: str) -> bool:
        module, _, name = named.store.rpartition(".")
        repository = self._services[getattr(importlib.import_module(module), name)]
        if named.by is int and not (value.isascii() and value.isdecimal() and len(value) <= LONGEST_NUMBER):
            return False
        try:
            found: Any = getattr(repository, named.method)(named.by(value))
        except NotFoundError:
            return False
        return not named.job or found.kind == named.job
