"""Files are read as their authors publish them, and every error says which file and line and what to do."""

import ast
import csv
import gzip
import hashlib
import io
import json
import sys
from email.message import Message
from pathlib import Path
from ssl import SSLError
from types import SimpleNamespace
from typing import Literal
from urllib.error import HTTPError, URLError

import pytest

from coft_core.errors import InvalidInputError
from coft_core.suites import files, registry
from coft_core.suites.files import DataError, DataFolder, HubSplit, HubUnreachableError, Line, Row, hub_lines
from coft_core.suites.registry import SUITES, suite

ROWS = [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}]
JSONL = "".join(f"{json.dumps(row)}\n" for row in ROWS)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "riddles").mkdir()
    return DataFolder(tmp_path)


def put(data, name, content, suite="riddles"):
    """Write a file and give it back."""
    file = data.path / suite / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def test_a_suites_own_folder_goes_before_the_folder_itself_and_a_plain_file_before_a_compressed_one(data):
    expected = [
        put(data, "b.txt", "x", suite="."), put(data, "a.txt.gz", b"x", suite="."), put(data, "a.txt", "x", suite="."),
        put(data, "b.txt.gz", b"x"), put(data, "a.txt.gz", b"x"), put(data, "a.txt", "x"),
    ]  # fmt: skip
    while expected:
        newest = expected.pop()
        assert data.find("riddles", "a.txt", "b.txt") == newest
        newest.unlink()
    assert data.find("riddles", "a.txt", "b.txt") is None


def test_documents_records_and_tables_are_read_with_their_files_and_lines(data):
    put(data, "a.txt.gz", gzip.compress("größer\n".encode()))
    assert data.content("riddles", "a.txt") == ("a.txt.gz", "größer\n")
    put(data, "a.txt", b"\xef\xbb\xbfone\xe2\x80\xa8still one\r\ntwo\n\nfour\n")
    assert data.lines("riddles", "a.txt") == ["one\u2028still one", "two", "", "four"]
    put(data, "a.json", json.dumps(ROWS))
    assert data.json("riddles", "a.json") == ("a.json", ROWS)
    put(data, "a.jsonl", f"\n{JSONL}\n \n" + json.dumps({"text": "one\u2028two"}, ensure_ascii=False))
    assert list(data.json_lines("riddles", "a.jsonl")) == [
        Line("a.jsonl", 2, ROWS[0]), Line("a.jsonl", 3, ROWS[1]), Line("a.jsonl", 6, {"text": "one\u2028two"}),
    ]  # fmt: skip
    put(data, "a.csv", 'id,text\r\n1,"one\nline, two"\r\n\r\n2,"say ""two"""\r\n')
    assert [(line.number, dict(line.values)) for line in data.table("riddles", "a.csv")] == [
        (2, {"id": "1", "text": "one\nline, two"}), (5, {"id": "2", "text": 'say "two"'}),
    ]  # fmt: skip
    put(data, "a.tsv", "id\ttext\n1\ta,b\n")
    assert [line.values for line in data.table("riddles", "a.tsv", delimiter="\t")] == [{"id": "1", "text": "a,b"}]


@pytest.mark.parametrize(("name", "content", "said"), [
    ("a.txt.gz", gzip.compress(b"text" * 100, mtime=0)[:-6], r"a\.txt\.gz cannot be read \(.*\)"),
    ("a.txt.gz", b"no gzip at all", r"a\.txt\.gz cannot be read \(.*\)"),
    ("a.txt.gz", gzip.compress(b"text" * 100, mtime=0)[:12] + b"damaged bytes!!", r"a\.txt\.gz cannot be read \(.*\)"),
    ("a.txt", "größer".encode("latin-1"), r"a\.txt cannot be read \(.*\)"), ("a.txt", " \n\n", r"a\.txt is empty"),
    ("a.json", '[1,\n2,\n"three]', r"a\.json is no JSON \(.*line 3.*\)"),
    ("a.jsonl", f'{JSONL}\n{{"id": 3', r"a\.jsonl, line 4: this is no JSON .*"),
    ("a.jsonl", f"{JSONL}\n[1, 2]\n", r"a\.jsonl, line 4: this is no object"),
    ("a.csv", 'id,text\n1,"two\nlines"\n3\n', r"a\.csv, line 4: there are 1 values and 2 columns"),
    ("a.csv", 'id,text\n1,"two\nlines"\n3,x,y\n', r"a\.csv, line 4: there are 3 values and 2 columns"),
    ("a.csv", 'id,text\n1,one\n2,"' + "x" * 200_000 + '"\n', r"a\.csv, line 3: field larger than field limit .*"),
])  # fmt: skip
def test_a_damaged_file_is_named_with_its_line(data, name, content, said):
    put(data, name, content)
    plain = name.removesuffix(".gz")
    read = {"txt": data.content, "json": data.json, "jsonl": data.json_lines, "csv": data.table}[plain.split(".")[1]]
    before = csv.field_size_limit(131_072)
    try:
        with pytest.raises(DataError, match=rf"^{said}; take the file from its publisher again\.$"):
            list(read("riddles", plain))
    finally:
        csv.field_size_limit(before)


class Riddle(Row):
    id: int
    text: str
    kind: Literal["a", "b"] = "a"


def test_a_record_is_read_as_its_model_has_it_and_what_is_wrong_with_a_field_is_said():
    for number in (4, "4", "4.0"):
        assert Line("a.jsonl", 7, {"id": number, "text": "", "more": None}).read(Riddle) == Riddle(id=4, text="")
    for name, value in (("id", None), ("id", "4.5"), ("id", "nan"), ("id", [4]), ("text", 3), ("kind", "c")):
        with pytest.raises(DataError, match=rf"^a\.jsonl, line 7: the field '{name}' is ") as caught:
            Line("a.jsonl", 7, {"id": 1, "text": "x", name: value}).read(Riddle)
        assert ("missing" if value is None else repr(value)) in str(caught.value)


def test_a_release_is_known_by_the_digests_of_all_uncompressed_files_and_else_nothing_is_claimed(data):
    known = {
        hashlib.sha256(content).hexdigest(): name
        for name, content in (("Riddles 1.0", b"one"), ("Riddles 1.0", b"two"), ("Answers 2.0", b"three"))
    }
    unknown = "not a known release of the whole set: figures may not compare with published ones"
    assert data.release("riddles", known) == unknown
    for name, content, release in (
        ("a.txt.gz", gzip.compress(b"one", mtime=0), "Riddles 1.0"), ("b.txt", "two", "Riddles 1.0"),
        ("c.txt", "three", "Riddles 1.0, Answers 2.0"), ("d.txt", "changed", unknown),
    ):  # fmt: skip
        put(data, name, content)
        data.content("riddles", name.removesuffix(".gz"))
        assert data.release("riddles", known) == release


def fake_datasets(monkeypatch, load, answers=True, offline=False):
    """A package that loads so, and a hub that answers or not."""
    config = SimpleNamespace(HF_HUB_OFFLINE=offline, HF_ENDPOINT="https://hub.invalid")
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load, config=config))
    monkeypatch.setattr(files, "hub_answers", lambda address: answers)


def test_records_of_a_hub_are_asked_for_by_name_part_and_split_and_a_failure_says_what_to_do(monkeypatch):
    asked, part = [], HubSplit("owner/riddles", "test", "hard")

    def load(*args, **options):
        asked.append((args, options))
        return iter(ROWS)

    fake_datasets(monkeypatch, load)
    assert hub_lines(part) == [Line("owner/riddles (test)", number, row) for number, row in enumerate(ROWS, 1)]
    assert asked == [(("owner/riddles", "hard"), {"split": "test", "revision": None})]
    for error in (ValueError("no split"), OSError("disk full"), RuntimeError("scripts are not supported")):

        def fail(*args, error=error, **options):
            raise error

        fake_datasets(monkeypatch, fail)
        with pytest.raises(DataError, match=rf"owner/riddles .*\({error}\).*--data, or COFT_DATA"):
            hub_lines(part)


def test_a_hub_that_does_not_answer_is_asked_for_nothing_unless_downloads_are_asked_for(monkeypatch):
    asked, part = [], HubSplit("owner/riddles", "test")
    fake_datasets(monkeypatch, lambda *args, **options: asked.append(args), answers=False)
    with pytest.raises(HubUnreachableError, match=r"owner/riddles .*HF_HUB_OFFLINE=1.*--data, or COFT_DATA"):
        hub_lines(part)
    assert asked == []
    fake_datasets(monkeypatch, lambda *args, **options: iter(ROWS), answers=False, offline=True)
    assert len(hub_lines(part)) == 2
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"install requirements-evaluation\.txt, or name a folder"):
        hub_lines(part)
    with pytest.raises(DataError, match="BBQ is read from files"):
        suite("bbq").items_from_hub()


@pytest.mark.parametrize(("problem", "answers"), [
    (None, True), (HTTPError("https://hub.invalid", 503, "busy", Message(), None), True),
    (URLError(SSLError("unknown authority")), True), (URLError(OSError("no route")), False),
    (TimeoutError("5 s"), False),
])  # fmt: skip
def test_a_hub_answers_whatever_it_says_and_is_asked_once_a_minute(monkeypatch, problem, answers):
    asked = []

    def opened(request, timeout):
        asked.append(timeout)
        if problem is not None:
            raise problem
        return io.BytesIO()

    files.hub_answers.cache_clear()
    monkeypatch.setattr(files, "urlopen", opened)
    assert [files.hub_answers("https://hub.invalid") for _ in range(3)] == [answers] * 3
    assert asked == [files.HUB_SECONDS]
    files.hub_answers.cache_clear()


def test_every_suite_says_what_it_is_and_one_without_its_files_which_are_missing(tmp_path):
    for known in SUITES:
        assert suite(known.key) is known
        card = known.card
        for text in (known.title, known.citation, known.licence, card.measures, card.leaves_out, card.criticism):
            assert text.strip(), known.key
        if not known.key.startswith("phantom"):  # whose files come with the program
            with pytest.raises(DataError, match=r"There is no file .* in .*; download .* from .* publisher, or name"):
                known.items(DataFolder(tmp_path))
    assert len({known.key for known in SUITES}) == len(SUITES)
    with pytest.raises(InvalidInputError, match=r"There is no suite 'riddles'; choose .*stereoset.*eli5"):
        suite("riddles")


def test_the_list_of_suites_needs_no_package_beyond_those_of_the_program():
    for file in Path(registry.__file__).parent.glob("*.py"):
        # What is imported within a function is needed only when that is called.
        nodes = ast.parse(file.read_text("utf-8")).body
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
        assert not {name.partition(".")[0] for name in names} & {"datasets", "rouge_score", "faiss", "mauve"}, file
