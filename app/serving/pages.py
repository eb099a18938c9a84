"""The pages' own scripts and styles: which page takes which, and how they are served.

They lie in ``assets/base`` (what several pages use) and ``assets/pages``. All of them are served under one address that
carries a digest of their content, so that a browser keeps them for good and what a script imports, by a path beside its
own, carries the digest too. A page's head names what it needs before anything is drawn.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.serving.gate import EVERYWHERE_FORBIDDEN, POLICY
from app.shared.audits import SENSITIVE
from app.shared.charts import FONT_SIZE, MONO, PALETTES, plain_layout, template
from app.shared.decoding import FRAMED
from app.shared.policies import policies_shown
from app.shared.settings_rail import FIELDS
from app.shared.web import ASSETS
from app.shared.wiring import Page

FOLDERS = ("base", "pages")
FIRST = "base/first.js"
"""Written into the page itself, since it says what the first drawing looks like."""
SHARED = "base/shared.js"
"""Made from what Python has: colours, axes and methods."""
PLOTLY = "base/vendor/plotly.min.js"
"""The charts' library as its package for Python carries it; a page asks for it when it has something to draw."""
FOREVER = "public, max-age=31536000, immutable"
TYPES = {".js": "text/javascript", ".css": "text/css"}
ADDRESS = "own"

COMMON = (("base/base", "base/controls", "base/frame"), ("base/gradio", "base/widths"))
"""The styles of every page: those before its own, and those after."""


def styles_of(page: Page) -> tuple[str, ...]:
    """The style sheets of a page in the order in which they count."""
    return tuple(f"{name}.css" for name in (*COMMON[0], *page.styles, *COMMON[1]))


@dataclass(frozen=True)
class PageFiles:
    """Scripts and styles by their paths, as they are served."""

    contents: Mapping[str, str]

    @cached_property
    def root(self) -> str:
        """The folder of all addresses, relative to a page."""
        digest = hashlib.sha256(json.dumps(sorted(self.contents.items())).encode()).hexdigest()
        return f"{ADDRESS}/{digest[:16]}"

    def scripts_of(self, page: Page) -> list[str]:
        """The scripts that a page runs and all that they import, each once."""
        paths: list[str] = []
        waiting = [f"{name}.js" for name in page.scripts]
        while waiting:
            path = waiting.pop(0)
            if path not in paths:
                paths.append(path)
                waiting += self._imports(path)
        return paths

    def head(self, page: Page) -> tuple[str, str]:
        """What a page's head begins and ends with."""
        run = {f"{name}.js" for name in page.scripts}
        preloads = "".join(
            f'<link rel="modulepreload" href="./{self.root}/{path}">'
            for path in self.scripts_of(page)
            if path not in run
        )
        scripts = "".join(f'<script type="module" src="./{self.root}/{name}.js"></script>' for name in page.scripts)
        styles = "".join(f'<link rel="stylesheet" href="./{self.root}/{path}">' for path in styles_of(page))
        meta = '<meta name="color-scheme" content="light dark">'
        return f"{meta}<script>{self.contents[FIRST]}</script>{preloads}{scripts}", styles

    def answer(self, request: Request) -> Response:
        """One file, to be kept for good; an address of another version names nothing."""
        path = request.path_params["path"]
        if f"{ADDRESS}/{request.path_params['digest']}" != self.root or path not in self.contents:
            return PlainTextResponse("There is no such file; load the page again.", 404)
        return Response(self.contents[path], media_type=TYPES[Path(path).suffix], headers={"Cache-Control": FOREVER})

    def _imports(self, path: str) -> list[str]:
        """The paths of what a script imports."""
        named = re.findall(r'^import [^;]*?"(\.[^"]+)";', self.contents[path], re.MULTILINE)
        return [posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) for name in named]


def page_files() -> PageFiles:
    """Read the scripts and styles, and make the one script of what Python has."""
    contents = {
        path.relative_to(ASSETS).as_posix(): path.read_text("utf-8")
        for folder in FOLDERS
        for path in (ASSETS / folder).rglob("*")
        if path.suffix in TYPES
    }
    shared = {
        "templates": {mode: template(mode) for mode in PALETTES},
        "palettes": PALETTES,
        "config": CONFIG,
        "frames": frames(),
        "sensitive": SENSITIVE,
        "policies": policies_shown(),
        "settings": FIELDS,
        "framed": FRAMED,
    }
    contents[PLOTLY] = get_plotlyjs()
    contents[SHARED] = f"export const shared = {json.dumps(shared)};\n"
    return PageFiles(contents)


BASE = b'<base href="./" />'
"""Says what goes without it, which the policy forbids to say; charts would name their clip paths by whole addresses."""
_SCRIPT = re.compile(rb"<script\b(?P<attributes>[^>]*)>.*?</script>", re.DOTALL)


def with_nonce(page: bytes, nonce: str) -> bytes:
    """A page whose scripts carry a nonce; text inside of a script is left as it is."""
    mark = f'<script nonce="{nonce}"'.encode()
    return _SCRIPT.sub(lambda script: mark + script[0].removeprefix(b"<script"), page)


class PageHeads:
    """Middleware that writes each page's own scripts and styles into its head, which Gradio has only one of."""

    def __init__(self, app: ASGIApp, heads: Mapping[str, tuple[str, str]]) -> None:
        self._app, self._heads = app, heads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on, pages with their heads."""
        path = scope["path"].removeprefix(scope.get("root_path", "")) if scope["type"] == "http" else None
        head = None if path is None else self._heads.get(path.removeprefix("/"))
        if head is None:
            await self._app(scope, receive, send)
            return
        begun: list[Message] = []
        body = bytearray()

        async def whole(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.append(message)
                return
            body.extend(message.get("body", b""))
            if message.get("more_body"):
                return
            page, headers = bytes(body), MutableHeaders(raw=begun[0]["headers"])
            if headers.get("content-type", "").startswith("text/html"):
                page = page.replace(BASE, b"", 1).replace(b"<head>", b"<head>" + head[0].encode(), 1)
                # What is shown may name the tag as well, in the settings that the head holds: the last one ends it.
                above, end, below = page.rpartition(b"</head>")
                nonce = secrets.token_urlsafe(16)
                page = with_nonce(above + head[1].encode() + end + below, nonce)
                # Gradio makes functions of texts in its pages' configuration, which takes ``unsafe-eval``; a script
                # that somebody's text brought into the page would still not run.
                sources = f"'self' 'unsafe-eval' 'nonce-{nonce}'"
                headers[POLICY] = f"{EVERYWHERE_FORBIDDEN}; script-src {sources}; worker-src 'self' blob:"
                headers["content-length"] = str(len(page))
            await send(begun[0])
            await send({"type": "http.response.body", "body": page})

        await self._app(scope, receive, whole)


def served(pages: Iterable[Page], routes: Iterable[Route] = (), meta: str = "") -> dict[str, list[object]]:
    """What the web application is made with, so that it serves files and routes, and its pages name the files."""
    files = page_files()
    heads = {page.path: (meta + files.head(page)[0], files.head(page)[1]) for page in pages}
    return {
        "routes": [Route(f"/{ADDRESS}/{{digest}}/{{path:path}}", files.answer), *routes],
        "middleware": [Middleware(PageHeads, heads=heads)],
    }


CONFIG = {"displayModeBar": False, "responsive": True, "doubleClick": False, "showTips": False}


def frames() -> dict[str, dict[str, Any]]:
    """Layout of each picture without its template, by the picture's name, as plain JSON."""
    by_step = {"showgrid": False, "dtick": 8, "tick0": 1}
    wide, log = {"l": 54, "r": 8, "t": 8, "b": 20}, {"type": "log", "tickmode": "array", "zeroline": False}
    pictures: dict[str, tuple[int, dict[str, int], dict[str, Any]]] = {
        # Grouped bars of a step's candidates in the three readings, and the threshold.
        "candidates": (188, {"l": 34, "r": 4, "t": 12, "b": 22}, {
            "barmode": "group", "bargap": 0.24, "bargroupgap": 0.1,
            "xaxis": {"tickmode": "array", "tickfont": {"family": MONO, "size": FONT_SIZE}, "showgrid": False},
            "yaxis": {"rangemode": "tozero", "nticks": 5, "tickformat": ".2~f"},
        }),
        # Size of the certified set above, threshold below.
        "steps": (150, {"l": 34, "r": 4, "t": 6, "b": 20}, {
            "bargap": 0.38, "xaxis": {**by_step, "anchor": "y2"},
            "yaxis": {"domain": [0.42, 1], "rangemode": "tozero", "nticks": 3},
            "yaxis2": {"domain": [0, 0.27], "rangemode": "tozero", "nticks": 2},
        }),
        # A cell for each step; the row above marks which way a sensitive token moves.
        "strip": (92, {"l": 8, "r": 8, "t": 6, "b": 20}, {
            "xaxis": {**by_step, "showline": False}, "yaxis": {"visible": False, "range": [-0.5, 1.3]},
        }),
        # A step's candidates by their probability as typed and masked.
        "scatter": (320, {"l": 52, "r": 8, "t": 10, "b": 40}, {
            "xaxis": {**log, "title": {"text": "factual probability, log scale", "standoff": 6}},
            "yaxis": {**log, "showline": True, "title": {"text": "masked probability, log scale", "standoff": 4}},
        }),
        # KL(fused || masked) above, total variation on the certified set and its bound below.
        "divergence": (190, wide, {
            "bargap": 0.38, "xaxis": {**by_step, "anchor": "y2"},
            "yaxis": {"domain": [0.53, 1], "rangemode": "tozero", "nticks": 3, "title": {"text": "KL, nats"}},
            "yaxis2": {
                "domain": [0, 0.42], "range": [0, 1.08], "tickvals": [0, 0.5, 1],
                "title": {"text": "TV", "standoff": 4},
            },
        }),
        # How far each token's joint support lies above or under its threshold.
        "margin": (150, wide, {
            "bargap": 0.38, "xaxis": {**by_step, "showline": False},
            "yaxis": {"nticks": 4, "zeroline": True, "zerolinewidth": 1.5, "title": {"text": "nats", "standoff": 4}},
        }),
    }  # fmt: skip
    figures = {name: plain_layout(height, margin).update(own) for name, (height, margin, own) in pictures.items()}
    return {
        name: {key: value for key, value in layout.to_plotly_json().items() if key != "template"}
        for name, layout in figures.items()
    }
