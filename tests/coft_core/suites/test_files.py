"""Files are read as their authors publish them, and every error says which file and line and what to do."""

import csv
import gzip
import hashlib
import io
import json
import sys
from email.message import Message
from ssl import SSLError
from types import SimpleNamespace
from typing import Literal
from urllib.error import HTTPError, URLError

import pytest

from coft_core.suites import files
from coft_core.suites.base import Figure, Suite
from coft_core.suites.files import DataError, DataFolder, HubSplit, HubUnreachableError, Line, Release, Row, hub_lines

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


# Finding.


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


def test_a_missing_file_is_named_with_the_places_that_were_looked_in_and_what_to_do(data):
    (data.path / "riddles" / "b.txt").mkdir()
    with pytest.raises(DataError) as caught:
        data.content("riddles", "a.txt", "b.txt")
    for named in ("a.txt or b.txt", str(data.path / "riddles"), f" {data.path};", "--data", "COFT_DATA"):
        assert named in str(caught.value)


# Content.


def test_a_compressed_file_reads_as_the_plain_one_without_its_mark_of_byte_order(data):
    put(data, "a.txt.gz", gzip.compress("größer\n".encode()))
    assert data.content("riddles", "a.txt") == ("a.txt.gz", "größer\n")
    assert data.lines("riddles", "a.txt") == ["größer"]
    put(data, "a.txt", b"\xef\xbb\xbftext")
    assert data.content("riddles", "a.txt")[1] == "text"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt.gz", gzip.compress(b"text" * 100)[:-6]),
        ("a.txt.gz", b"no gzip at all"),
        ("a.txt.gz", gzip.compress(b"text" * 100)[:12] + b"damaged bytes here!!"),
        ("a.txt", "größer".encode("latin-1")),
        ("a.txt.gz", gzip.compress("größer".encode("latin-1"))),
    ],
    ids=["cut", "no gzip", "other bytes", "no UTF-8", "no UTF-8 within"],
)
def test_a_damaged_file_is_named(data, name, content):
    put(data, name, content)
    with pytest.raises(DataError, match=rf"^{name} cannot be read \(.*\); take the file from its publisher again\.$"):
        data.content("riddles", "a.txt")


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_an_empty_file_is_named(data, content):
    put(data, "a.txt", content)
    with pytest.raises(DataError, match=r"^a\.txt is empty; take"):
        data.content("riddles", "a.txt")


def test_documents_and_records_are_read_with_their_files_and_lines(data):
    put(data, "a.txt", "one\u2028still one\r\ntwo\n\nfour\n")
    assert data.lines("riddles", "a.txt") == ["one\u2028still one", "two", "", "four"]
    put(data, "a.json", json.dumps(ROWS))
    assert data.json("riddles", "a.json") == ("a.json", ROWS)
    put(data, "a.json", '[1,\n2,\n"three]')
    with pytest.raises(DataError, match=r"^a\.json is no JSON \(.*line 3.*\); take the file from its publisher again"):
        data.json("riddles", "a.json")
    put(data, "a.jsonl", f"\n{JSONL}\n \n")
    lines = list(data.json_lines("riddles", "a.jsonl"))
    assert lines == [Line("a.jsonl", 2, ROWS[0]), Line("a.jsonl", 3, ROWS[1])]
    put(data, "a.jsonl", json.dumps({"text": "one\u2028two"}, ensure_ascii=False))
    [line] = data.json_lines("riddles", "a.jsonl")
    assert line.values["text"] == "one\u2028two"


# JSON.


@pytest.mark.parametrize(("bad", "reason"), [('{"id": 3', "this is no JSON"), ("[1, 2]", "this is no object")])
def test_a_damaged_record_is_named_with_its_line(data, bad, reason):
    put(data, "a.jsonl", f"{JSONL}\n{bad}\n")
    with pytest.raises(DataError, match=rf"^a\.jsonl, line 4: {reason}"):
        list(data.json_lines("riddles", "a.jsonl"))


# Tables.


def test_rows_have_their_columns_and_lines_and_a_table_that_cannot_be_read_is_named(data):
    put(data, "a.csv", 'id,text\r\n1,"one\nline, two"\r\n\r\n2,"say ""two"""\r\n')
    lines = list(data.table("riddles", "a.csv"))
    assert [(line.number, dict(line.values)) for line in lines] == [
        (2, {"id": "1", "text": "one\nline, two"}),
        (5, {"id": "2", "text": 'say "two"'}),
    ]
    put(data, "a.tsv", "id\ttext\n1\ta,b\n")
    [line] = data.table("riddles", "a.tsv", delimiter="\t")
    assert line.values == {"id": "1", "text": "a,b"}
    before = csv.field_size_limit(131_072)
    put(data, "a.csv", 'id,text\n1,one\n2,"' + "x" * 200_000 + '"\n')
    try:
        with pytest.raises(DataError, match=r"^a\.csv, line 3: field larger than field limit"):
            list(data.table("riddles", "a.csv"))
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize(("row", "count"), [("3", 1), ("3,three,more", 3)])
def test_a_row_of_another_length_is_named_with_its_line(data, row, count):
    put(data, "a.csv", f'id,text\n1,"two\nlines"\n{row}\n')
    with pytest.raises(DataError, match=rf"^a\.csv, line 4: there are {count} values and 2 columns; take the file"):
        list(data.table("riddles", "a.csv"))


# Fields.


class Riddle(Row):
    id: int
    text: str
    kind: Literal["a", "b"] = "a"


def test_a_record_is_read_as_its_model_has_it_whether_its_numbers_are_texts_or_not():
    for number in (4, "4", "4.0"):
        assert Line("a.jsonl", 7, {"id": number, "text": "", "more": None}).read(Riddle) == Riddle(id=4, text="")


@pytest.mark.parametrize(
    ("name", "value"), [("id", None), ("id", "4.5"), ("id", "nan"), ("id", [4]), ("text", 3), ("kind", "c")]
)
def test_a_field_that_is_missing_or_of_another_kind_is_named_with_file_line_and_value(name, value):
    with pytest.raises(DataError) as caught:
        Line("a.jsonl", 7, {"id": 1, "text": "x", name: value}).read(Riddle)
    said = str(caught.value)
    assert said.startswith(f"a.jsonl, line 7: the field {name!r} is ")
    assert "missing" in said if value is None else repr(value) in said


# Releases.


def test_what_was_read_is_known_by_the_digest_of_its_uncompressed_bytes(data):
    put(data, "a.txt.gz", gzip.compress(b"text"))
    data.content("riddles", "a.txt")
    assert data.read == {"a.txt": hashlib.sha256(b"text").hexdigest()}


def test_a_release_is_named_where_every_file_is_known_and_else_nothing_is_claimed(data):
    known = [
        Release("Riddles 1.0", hashlib.sha256(b"one").hexdigest()),
        Release("Riddles 1.0", hashlib.sha256(b"two").hexdigest()),
        Release("Answers 2.0", hashlib.sha256(b"three").hexdigest()),
    ]
    unknown = "not a known release of the whole set: figures may not compare with published ones"
    assert data.release(known) == unknown
    for name, content in (("a.txt", "one"), ("b.txt", "two")):
        put(data, name, content)
        data.content("riddles", name)
    assert data.release(known) == "Riddles 1.0"
    put(data, "c.txt", "three")
    data.content("riddles", "c.txt")
    assert data.release(known) == "Riddles 1.0, Answers 2.0"
    assert data.release(known[:2]) == unknown
    put(data, "d.txt", "changed")
    data.content("riddles", "d.txt")
    assert data.release(known) == unknown


# Hubs.


def fake_datasets(monkeypatch, load, answers=True, offline=False):
    """A package that loads so, and a hub that answers or not."""
    config = SimpleNamespace(HF_HUB_OFFLINE=offline, HF_ENDPOINT="https://hub.invalid")
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load, config=config))
    monkeypatch.setattr(files, "hub_answers", lambda address: answers)


def test_records_of_a_hub_are_asked_for_by_name_part_and_split(monkeypatch):
    asked = []

    def load(*args, **options):
        asked.append((args, options))
        return iter(ROWS)

    fake_datasets(monkeypatch, load)
    lines = hub_lines(HubSplit("owner/riddles", "hard", "test"))
    assert asked == [(("owner/riddles", "hard"), {"split": "test"})]
    assert [(line.file, line.number, line.values) for line in lines] == [
        ("owner/riddles (test)", 1, ROWS[0]),
        ("owner/riddles (test)", 2, ROWS[1]),
    ]


@pytest.mark.parametrize("error", [
    ConnectionError("no route"), ValueError("no split"), OSError("disk full"),
    RuntimeError("scripts are not supported"),
])  # fmt: skip
def test_a_data_set_that_the_hub_does_not_have_is_an_error_that_says_what_to_do(monkeypatch, error):
    def load(*args, **options):
        raise error

    fake_datasets(monkeypatch, load)
    with pytest.raises(DataError) as caught:
        hub_lines(HubSplit("owner/riddles", None, "test"))
    for named in ("owner/riddles", f"({error})", "--data", "COFT_DATA"):
        assert named in str(caught.value)


def test_a_hub_that_does_not_answer_is_asked_for_nothing_unless_downloads_are_asked_for(monkeypatch):
    asked = []
    fake_datasets(monkeypatch, lambda *args, **options: asked.append(args), answers=False)
    with pytest.raises(HubUnreachableError) as caught:
        hub_lines(HubSplit("owner/riddles", None, "test"))
    for named in ("owner/riddles", "HF_HUB_OFFLINE=1", "--data", "COFT_DATA"):
        assert named in str(caught.value)
    assert asked == []
    fake_datasets(monkeypatch, lambda *args, **options: iter(ROWS), answers=False, offline=True)
    assert len(hub_lines(HubSplit("owner/riddles", None, "test"))) == 2
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"install requirements-evaluation\.txt, or name a folder"):
        hub_lines(HubSplit("owner/riddles", None, "test"))


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


def test_a_suite_that_no_hub_has_says_so():
    class Riddles(Suite):
        title = "Riddles"

        def items(self, data):
            return []

        def figures(self, outcomes, outside="floor"):
            return [Figure("x", "X", None)]

    with pytest.raises(DataError, match="Riddles is read from files alone; name the folder"):
        Riddles().items_from_hub()
