"""The security checklist names every requirement once and tests that are there; what it says of the code holds."""

from __future__ import annotations

import ast
import csv
import functools
import importlib
import pkgutil
import re
from collections import Counter
from pathlib import Path

from db.tables import METADATA
from tests.project.parsed import ROOT, modules, statements

CHECKLIST = ROOT / "tests" / "project" / "asvs.csv"
STATES = {"held": "held", "does not apply": "not", "open": "open"}

LEVELS = {
    "1.1": "22", "1.2": "1111122223", "1.3": "112222222223", "1.4": "222", "1.5": "123",
    "2.1": "122", "2.2": "112", "2.3": "12223", "2.4": "23",
    "3.1": "3", "3.2": "113", "3.3": "12223", "3.4": "11222233", "3.5": "11122333", "3.6": "3", "3.7": "22333",
    "4.1": "12233", "4.2": "23333", "4.3": "22", "4.4": "1222",
    "5.1": "2", "5.2": "112333", "5.3": "113", "5.4": "222",
    "6.1": "122", "6.2": "111111112222", "6.3": "11223333", "6.4": "112233", "6.5": "22222333", "6.6": "2223",
    "6.7": "33", "6.8": "2222",
    "7.1": "222", "7.2": "1111", "7.3": "22", "7.4": "11222", "7.5": "223", "7.6": "22",
    "8.1": "1233", "8.2": "1123", "8.3": "133", "8.4": "23",
    "9.1": "111", "9.2": "1222",
    "10.1": "22", "10.2": "223", "10.3": "22223", "10.4": "1111122222233333", "10.5": "22222", "10.6": "22",
    "10.7": "222",
    "11.1": "2233", "11.2": "22233", "11.3": "11233", "11.4": "1222", "11.5": "23", "11.6": "23", "11.7": "33",
    "12.1": "12233", "12.2": "11", "12.3": "22223",
    "13.1": "2333", "13.2": "222223", "13.3": "2233", "13.4": "1222233",
    "14.1": "22", "14.2": "12223333", "14.3": "122",
    "15.1": "12233", "15.2": "12233", "15.3": "1222222", "15.4": "3333",
    "16.1": "2", "16.2": "22222", "16.3": "2222", "16.4": "222", "16.5": "2223",
    "17.1": "23", "17.2": "22223333", "17.3": "22",
}  # fmt: skip
"""The level of each requirement of version 5.0.0, by section and in its order there."""


def rows() -> list[tuple[str, str, str, str]]:
    """Number, level, state and reason of each line of the checklist."""
    with CHECKLIST.open(newline="", encoding="utf-8") as file:
        return [(row["requirement"], row["level"], row["state"], row["reason"]) for row in csv.DictReader(file)]


def test_every_requirement_of_levels_1_and_2_stands_once_with_its_level():
    wanted = {
        f"{section}.{place}": level
        for section, levels in LEVELS.items()
        for place, level in enumerate(levels, 1)
        if level != "3"
    }
    assert len(wanted) == 253
    assert [(number, level) for number, level, _, _ in rows()] == list(wanted.items())


def test_every_line_has_a_state_and_each_that_is_held_names_a_test_that_is_there():
    missing = []
    for number, _, state, reason in rows():
        assert state in STATES, number
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", reason)
        assert len(named) == reason.count("`tests/"), number
        assert named or state != "held", number
        for path, test in named:
            text = (ROOT / path).read_text("utf-8") if (ROOT / path).is_file() else ""
            missing += [] if f"def {test}(" in text else [(number, path, test)]
    assert missing == []


def test_the_overview_counts_what_the_checklist_says():
    counts = Counter(STATES[state] for _, _, state, _ in rows())
    said = (
        f"Of its {sum(counts.values())} requirements of the levels 1 and 2, {counts['held']} are held, "
        f"{counts['not']} do not apply and {counts['open']} are open."
    )
    assert said in (ROOT / "docs" / "security.md").read_text("utf-8").replace("\n", " ")


@functools.cache
def used() -> dict[str, set[str]]:
    """What each module of the program uses, by its path."""
    return {
        path.relative_to(ROOT).as_posix(): _used(path)
        for folder in ("app", "coft_core", "db")
        for path in modules(folder)
    }


def _dotted(node: ast.expr) -> str:
    """A name as it is written; empty for the rest of what can be called."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _used(path: Path) -> set[str]:
    """Modules that are imported, by their first name, and what is called, as it is written."""
    found: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call):
            found.add(f"{_dotted(node.func)}()")
    return found


FORBIDDEN = {
    "subprocess", "pty", "marshal", "shelve", "xml", "lxml", "eval()", "exec()", "os.system()", "os.popen()",
    "os.execv()", "os.spawnv()", "yaml.unsafe_load()", "yaml.full_load()", "torch.load()", "pickle",
}  # fmt: skip


def test_no_module_starts_a_process_evaluates_text_or_reads_xml():
    found = {(path, name) for path, names in used().items() for name in names & FORBIDDEN}
    # Between a job and its own workers on Ray; nothing of it comes from a request.
    # The gate writes JUnit's XML and reads none.
    assert found == {("app/jobs/travelling.py", "pickle"), ("app/gate/outputs.py", "xml")}


def test_no_module_uses_a_broken_digest():
    digests = {name for names in used().values() for name in names if re.fullmatch(r"hashlib\.\w+\(\)", name)}
    # BLAKE2b draws places of prompts, and protects nothing. SHA-1 compares files with the names that git gives them.
    # SHA-512 is a part of Ed25519.
    assert digests == {"hashlib.sha256()", "hashlib.blake2b()", "hashlib.sha1()", "hashlib.sha512()"}
    assert "hashlib.sha1()" in used()["coft_core/suites/sources.py"]
    assert sum("hashlib.sha1()" in names for names in used().values()) == 1


def test_no_script_writes_by_two_names_in_a_row():
    """A prototype that all objects share is reached by its own name and a name in it, never by one name alone."""
    twice = re.compile(r"\]\s*\[[^\]]+\]\s*(?:=(?!=)|\?\?=|\|\|=|\+=)|__proto__|\.prototype\b")
    scripts = [path for folder in ("base", "pages") for path in sorted((ROOT / "assets" / folder).glob("*.js"))]
    assert len(scripts) > 40
    assert [(path.name, found[0]) for path in scripts if (found := twice.search(path.read_text("utf-8")))] == []


OVERVIEW = ROOT / "docs" / "security.md"
CRYPTOGRAPHY = {"argon2", "cryptography", "joserfc", "authlib", "secrets", "hmac"}


def test_every_table_of_the_store_belongs_to_one_class_of_data():
    for module in pkgutil.iter_modules([str(ROOT / "db")]):
        importlib.import_module(f"db.{module.name}")
    classes = re.findall(r"^\| (?:Secret|Confidential|Internal) \| (.*?) \|", OVERVIEW.read_text("utf-8"), re.MULTILINE)
    named = [name for cell in classes for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(METADATA.tables)


def test_every_module_with_cryptography_stands_in_the_inventory():
    text = OVERVIEW.read_text("utf-8").partition("Cryptography is used")[2].partition("Whom the server asks")[0]
    using = {path for path, names in used().items() if names & CRYPTOGRAPHY}
    assert set(re.findall(r"`([\w/]+\.py)`", text)) == using
