"""The documents name what exists, their commands are commands, the site builds, and sizes are kept."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

import bench.reference
from app.cli import program
from app.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "llms.txt", *DOCS]
FOLDERS = ("app", "coft_core", "db", "assets", "bench", "tests", "docs")
NAMED = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w./{{}},-]*\w)")
MODULE = re.compile(r"python -m ((?:bench|tests|app)(?:\.\w+)*)")
WRITTEN = re.compile(r"^# ([\w./]+)$", re.MULTILINE)
"""A file whose content follows, for the reader to write."""
LINK = re.compile(r"\]\(((?!http|#)[^)#]+)")
BLOCK = re.compile(r"^```(?:sh|bash)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?python -m app (.*)$")
GENERATED = "reference/"


def text_of(document: Path) -> str:
    return document.read_text("utf-8")


def expanded(path: str) -> list[str]:
    """Both paths of ``a.{js,css}``."""
    options = re.search(r"\{([^}]*)\}", path)
    return [path.replace(options[0], option) for option in options[1].split(",")] if options else [path]


def exists(path: str) -> bool:
    return any((ROOT / name).exists() for name in (path, f"{path}.py"))


def commands(document: Path) -> Iterator[str]:
    """What follows ``python -m app`` on each line of the document's blocks."""
    for block in BLOCK.findall(text_of(document)):
        for line in block.replace("\\\n", " ").splitlines():
            if found := COMMAND.match(line):
                yield re.split(r"    #| > ", found[1])[0]


def test_every_file_that_a_document_names_exists():
    for document in DOCUMENTS:
        text = text_of(document)
        named = {path for found in NAMED.findall(text) for path in expanded(found)}
        modules = {module.replace(".", "/") for module in MODULE.findall(text)}
        missing = sorted(path for path in (named | modules) - set(WRITTEN.findall(text)) if not exists(path))
        assert missing == [], document.name


def test_every_link_of_a_document_leads_somewhere():
    for document in DOCUMENTS:
        links = [link for link in LINK.findall(text_of(document)) if not link.startswith(GENERATED)]
        assert [link for link in links if not (document.parent / link).exists()] == [], document.name


def test_every_command_of_a_document_is_one_with_these_arguments():
    asked = [(document.name, line) for document in DOCUMENTS for line in commands(document)]
    assert len(asked) > 25
    for name, line in asked:
        taken = program(lambda **_: pytest.fail("nothing is run")).main(args=shlex.split(line), standalone_mode=False)
        assert callable(taken), (name, line)


def test_the_site_builds_without_a_warning_and_has_every_setting(tmp_path):
    for name in ("docs", "mkdocs.yml"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    bench.reference.main(tmp_path / "docs" / "reference")
    build(load_config(str(tmp_path / "mkdocs.yml"), strict=True))
    built = (tmp_path / "site" / "reference" / "settings.html").read_text("utf-8")
    assert [name for name in Settings.model_fields if f"COFT_{name.upper()}" not in built] == []


def test_the_readme_fits_on_two_screens_and_the_documents_can_be_read_in_an_evening():
    readme = text_of(README)
    assert len(readme.splitlines()) <= 90
    assert len(readme.split()) <= 650
    assert sum(len(text_of(document).split()) for document in DOCS) <= 24_000


def test_the_readmes_program_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", text_of(README), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) > 1
