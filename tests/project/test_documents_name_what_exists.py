"""The documents name files, modules and scripts that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = ("app", "coft_core", "db", "assets", "bench", "tests", "docs")
NAMED = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w./{{}},-]*\w)")
MODULE = re.compile(r"python -m ((?:bench|tests|app)(?:\.\w+)*)")
WRITTEN = re.compile(r"^# ([\w./]+)$", re.MULTILINE)
"""A file whose content stands below, for the reader to write."""
LINK = re.compile(r"\]\(((?!http|#)[^)#]+)")


def expanded(path):
    """Both paths of ``a.{js,css}``."""
    options = re.search(r"\{([^}]*)\}", path)
    return [path.replace(options[0], option) for option in options[1].split(",")] if options else [path]


def exists(path):
    return any((ROOT / name).exists() for name in (path, f"{path}.py"))


def test_every_file_that_a_document_names_exists():
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        named = {path for found in NAMED.findall(text) for path in expanded(found)}
        modules = {module.replace(".", "/") for module in MODULE.findall(text)}
        missing = sorted(path for path in (named | modules) - set(WRITTEN.findall(text)) if not exists(path))
        assert missing == [], document.name


def test_every_link_of_a_document_leads_somewhere():
    for document in DOCUMENTS:
        links = LINK.findall(document.read_text("utf-8"))
        assert [link for link in links if not (document.parent / link).exists()] == [], document.name
