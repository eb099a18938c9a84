"""The pages' scripts and styles: each belongs to a page, is served for good, and uses nothing that is not there."""

from __future__ import annotations

import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app.bootstrap import FEATURES
from app.serving.pages import FIRST, PLOTLY, PageFiles, page_files, served, styles_of, with_nonce
from app.shared.web import ASSETS

PAGES = [feature.page for feature in FEATURES if feature.page]
GRADIO_SETS = {"range_progress"}
"""Custom properties that Gradio's own sliders set."""


@pytest.fixture(scope="module")
def files() -> PageFiles:
    return page_files()


def _sheets(files: PageFiles) -> dict[str, str]:
    return {path: text for path, text in files.contents.items() if path.endswith(".css")}


def test_every_file_belongs_to_a_page_and_every_page_finds_its_files(files: PageFiles) -> None:
    taken = {path for page in PAGES for path in (*files.scripts_of(page), *styles_of(page))}
    assert taken | {FIRST, PLOTLY} == set(files.contents)


def test_no_page_takes_the_scripts_of_another(files: PageFiles) -> None:
    for page in PAGES:
        own = tuple(script for script in page.scripts if script.startswith("pages/"))
        foreign = [path for path in files.scripts_of(page) if path.startswith("pages/") and not path.startswith(own)]
        assert foreign == []


def test_no_rule_uses_a_custom_property_that_nothing_sets(files: PageFiles) -> None:
    sheets = " ".join(_sheets(files).values())
    code = [path for folder in ("base", "pages", "templates") for path in (ASSETS / folder).rglob("*.[jh]*")]
    code += (ASSETS.parent / "app").rglob("*.py")
    scripted = " ".join(path.read_text("utf-8") for path in code)
    used = set(re.findall(r"var\(--([a-z0-9_-]+)", sheets))
    known = set(re.findall(r"--([a-z0-9_-]+)\s*:", sheets)) | set(re.findall(r"--([a-z0-9_-]+)", scripted))
    assert used - known - GRADIO_SETS == set()


def test_files_are_kept_for_good_under_an_address_that_changes_with_them(files: PageFiles) -> None:
    client = TestClient(Starlette(routes=served(PAGES)["routes"]))  # type: ignore[arg-type]
    answer = client.get(f"/{files.root}/base/core.js")
    assert answer.text == files.contents["base/core.js"]
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"].startswith("text/javascript")
    assert client.get("/own/of-another-version/base/core.js").status_code == 404
    assert client.get(f"/{files.root}/base/none.js").status_code == 404
    changed = PageFiles({**files.contents, "base/core.js": files.contents["base/core.js"] + "\n"})
    assert changed.root != files.root


def test_a_nonce_is_given_to_scripts_and_to_no_text_that_looks_like_one():
    text = b'<script>let x = "<script src=evil>";</script><p>&lt;script&gt;</p>'
    page = text + b'<script type="module" src="./a.js"></script>'
    marked = with_nonce(page, "N")
    assert marked.count(b'nonce="N"') == 2
    assert b'"<script src=evil>"' in marked
