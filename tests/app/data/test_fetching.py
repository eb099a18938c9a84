"""Published files of suites are downloaded whole, verified and noted, or it is said where to take them."""

import gzip
import hashlib
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub.errors import OfflineModeIsEnabled

from app.data import fetching
from app.data.fetching import SuiteFiles
from app.shared.errors import ServiceError
from coft_core.suites.base import Item
from coft_core.suites.files import FETCHED, DataError, DataFolder, HubSplit, Line
from coft_core.suites.registry import SUITES
from coft_core.suites.sources import SOURCES, PublishedFile, Source
from tests.app.evaluate.made_up import Quiz

REVISION = "f" * 40
CONTENTS = {"data/one.jsonl": b'{"text": "one"}\n', "data/two words.txt": b"two\n"}
ONE, TWO = CONTENTS.values()
GIT_OF_TWO = "git:" + hashlib.sha1(b"blob 4\0two\n").hexdigest()


class Riddles(Quiz):
    """A suite of two files of a repository."""

    key, title, folder, licence = "riddles", "Riddles", "riddles", "CC0"
    source = Source("GitHub", "owner/riddles", REVISION, (
        PublishedFile("one.jsonl", "data/one.jsonl", f"sha256:{hashlib.sha256(ONE).hexdigest()}"),
        PublishedFile("more/two.txt", "data/two words.txt", GIT_OF_TWO),
    ))  # fmt: skip


class Far(Quiz):
    """A suite that only a hub has."""

    key, title, folder = "far", "Far", "far"
    source = Source(hub=(HubSplit("owner/far", "test", "hard", "test.jsonl"),))

    def items(self, data: DataFolder) -> list[Item]:
        return [line.values for line in data.json_lines("far", "test.jsonl")]


class Recruits(Quiz):
    """A suite that Kaggle has."""

    key, title, folder = "recruits", "Recruits", "recruits"
    source = Source("Kaggle", "owner/recruits", files=(PublishedFile("all.csv", "all.csv"),))


MADE_UP = (Riddles(), Far(), Recruits())


@pytest.fixture
def server():
    """A server of files, with what it was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(404)
            self.end_headers()

        def do_GET(self):
            served.asked.append(self.path)
            content = served.contents.get(self.path.removeprefix(f"/owner/riddles/{REVISION}/").replace("%20", " "))
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"") + served.missing_bytes))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        address = f"http://127.0.0.1:{http.server_port}"
        served = SimpleNamespace(address=address, contents=dict(CONTENTS), asked=[], missing_bytes=0)
        Thread(target=http.serve_forever, daemon=True).start()
        yield served
        http.shutdown()


@pytest.fixture
def files(server, tmp_path):
    return SuiteFiles(str(tmp_path), MADE_UP, server.address)


def states(found):
    return [file.state for file in found]


def on_disk(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_files_are_downloaded_once_with_a_note_of_source_digest_and_licence(files, server, tmp_path):
    told = []
    assert states(files.fetch(["riddles"], tell=told.append)) == ["downloaded"] * 2
    assert "CC0" in told[0]
    assert server.asked == [f"/owner/riddles/{REVISION}/data/{name}" for name in ("one.jsonl", "two%20words.txt")]
    assert (tmp_path / "riddles/one.jsonl").read_bytes() == ONE
    assert on_disk(tmp_path) == {"riddles/one.jsonl", "riddles/more/two.txt", f"riddles/{FETCHED}"}
    notes = json.loads((tmp_path / "riddles" / FETCHED).read_text())
    assert notes["more/two.txt"] | {"sha256": hashlib.sha256(TWO).hexdigest(), "licence": "CC0", "revision": REVISION} \
        == notes["more/two.txt"]  # fmt: skip
    for found in (files.fetch(["riddles"]), files.fetch(["riddles"], force=True), files.found(["riddles"])):
        assert states(found) == ["kept"] * 2
    assert len(server.asked) == 2


def test_another_file_stays_and_is_named_until_it_is_replaced_by_force(files, server, tmp_path):
    (tmp_path / "riddles").mkdir()
    (tmp_path / "riddles/one.jsonl.gz").write_bytes(gzip.compress(ONE))
    assert states(files.fetch(["riddles"])) == ["kept", "downloaded"]
    for other in (gzip.compress(b"another"), b"no gzip"):
        (tmp_path / "riddles/one.jsonl.gz").write_bytes(other)
        assert states(files.fetch(["riddles"])) == states(files.found(["riddles"])) == ["differs", "kept"]
        assert (tmp_path / "riddles/one.jsonl.gz").read_bytes() == other
    assert states(files.fetch(["riddles"], force=True)) == ["downloaded", "kept"]
    assert DataFolder(tmp_path).content("riddles", "one.jsonl")[1].encode() == ONE


@pytest.mark.parametrize("spoiled", ["changed", "cut short", "gone"])
def test_a_download_that_is_not_the_published_file_leaves_nothing(files, server, tmp_path, spoiled):
    server.contents = {} if spoiled == "gone" else {path: data[:-1] for path, data in CONTENTS.items()}
    server.missing_bytes = 1 if spoiled == "cut short" else 0
    assert states(files.fetch(["riddles"])) == ["missing"] * 2
    assert on_disk(tmp_path) == set()
    (tmp_path / "riddles").mkdir()
    (tmp_path / "riddles/one.jsonl").write_bytes(b"mine")
    assert states(files.fetch(["riddles"], force=True)) == ["differs", "missing"]
    assert (tmp_path / "riddles/one.jsonl").read_bytes() == b"mine"


def test_a_fetch_that_dies_leaves_no_part_of_a_file_and_the_next_one_goes_on(files, tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(fetching, "write_bytes", lambda path, data: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(ServiceError, match=r"one\.jsonl cannot be written \(No space left\)"):
            files.fetch(["riddles"])
    assert on_disk(tmp_path) == {f"riddles/{FETCHED}"}
    assert states(files.fetch(["riddles"])) == ["downloaded"] * 2


def test_without_a_network_each_file_is_named_with_its_place_and_its_target_and_nothing_is_written(tmp_path):
    found = SuiteFiles(str(tmp_path), MADE_UP, "http://127.0.0.1:1").fetch(["riddles"])
    assert states(found) == ["missing"] * 2
    for file, path, name in zip(found, CONTENTS, ("one.jsonl", "more/two.txt"), strict=True):
        for part in (path, "owner/riddles", REVISION[:12], str(tmp_path / "riddles" / name), "cannot be reached"):
            assert part in file.said
    assert on_disk(tmp_path) == set()
    with pytest.raises(ServiceError, match=r"--data, or COFT_DATA"):
        SuiteFiles("", MADE_UP).fetch(["riddles"])
    with pytest.raises(ServiceError, match="There is no suite 'puzzles'"):
        SuiteFiles(str(tmp_path), MADE_UP).fetch(["puzzles"])


def test_records_of_a_hub_are_written_as_the_suite_reads_them_and_their_digest_is_noted(files, tmp_path, monkeypatch):
    rows, asked = [{"text": "one\u2028ü", "answers": {"text": ["a"]}}, {"text": None, "answers": {"text": []}}], []
    info = lambda self, name: SimpleNamespace(sha="abc" * 5)  # noqa: E731
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    monkeypatch.setattr(fetching, "hub_answers", lambda address: True)
    lines = lambda *part: asked.append(part) or [Line("hub", number, row) for number, row in enumerate(rows, 1)]  # noqa: E731
    monkeypatch.setattr(fetching, "hub_lines", lines)
    assert states(files.fetch(["far"])) == ["downloaded"]
    assert asked == [(*Far.source.hub, "abc" * 5)]
    data, [suite] = DataFolder(tmp_path), [suite for suite in MADE_UP if suite.key == "far"]
    assert suite.items(data) == rows
    assert data.release("far", {}) == f"owner/far, revision {'abc' * 4}"
    assert states(files.fetch(["far"])) == ["kept"]
    (tmp_path / "far/test.jsonl").write_text("{}\n")
    assert states(files.fetch(["far"])) == ["differs"]
    (tmp_path / "far" / FETCHED).unlink()
    [kept] = files.fetch(["far"])
    assert (kept.state, kept.said) == ("kept", fetching.UNVERIFIED)
    assert states(files.fetch(["far"], force=True)) == ["downloaded"]
    (tmp_path / "far" / FETCHED).write_text("[]")
    with pytest.raises(DataError, match=f"{FETCHED} cannot be read"):
        files.found(["far"])


def test_a_hub_that_is_offline_or_refuses_is_said_with_the_split_to_take(files, monkeypatch):
    def offline(self, name):
        raise OfflineModeIsEnabled("offline mode is enabled")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", offline)
    for answers, reason in ((True, "offline mode is enabled"), (False, "cannot be reached")):
        monkeypatch.setattr(fetching, "hub_answers", lambda address, answers=answers: answers)
        [file] = files.fetch(["far"])
        assert file.state == "missing"
        assert all(part in file.said for part in (reason, "split test", "owner/far", "configuration hard", file.file))


def test_a_file_of_kaggle_comes_with_its_version_or_says_which_package_is_missing(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kagglehub", None)
    [file] = files.fetch(["recruits"])
    assert (file.state, "pip install kagglehub" in file.said) == ("missing", True)
    cached = tmp_path / "versions/3/all.csv"
    cached.parent.mkdir(parents=True)
    cached.write_text("id\n1\n")
    hub = SimpleNamespace(dataset_download=lambda name, path: str(cached) if name == "owner/recruits" else "")
    monkeypatch.setitem(sys.modules, "kagglehub", hub)
    assert states(files.fetch(["recruits"])) == ["downloaded"]
    assert json.loads((tmp_path / "recruits" / FETCHED).read_text())["all.csv"]["revision"] == "3"


def test_the_command_ends_with_1_unless_every_file_is_there_as_published(command, server, tmp_path, monkeypatch):
    wired = classmethod(lambda cls, services: cls(services.settings.data, MADE_UP, server.address))
    monkeypatch.setattr(SuiteFiles, "wired", wired)
    listed = json.loads(command("data", "list", "riddles", "--data", tmp_path, "--json")[1])
    assert [file["state"] for file in listed] == ["missing"] * 2
    assert server.asked == []
    fetch = ("data", "fetch", "riddles", "--data", tmp_path)
    assert command(*fetch)[0] == 0
    (tmp_path / "riddles/one.jsonl").write_text("mine")
    code, out, err = command(*fetch)
    assert (code, out.count("kept"), "1 of 2" in err) == (1, 1, True)


def test_every_suite_has_a_source_whose_files_are_those_that_it_asks_for(tmp_path):
    for suite in SUITES:
        if suite.key.startswith("phantom"):  # whose files come with the program
            continue
        assert suite.source.published
        for file in suite.source.published:
            assert re.fullmatch(r"sha256:[0-9a-f]{64}|git:[0-9a-f]{40}|", file.digest)
            (tmp_path / suite.folder / file.name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / suite.folder / file.name).write_bytes(b"\xff")
        # Its files are damaged, and none is missing.
        with pytest.raises(DataError) as caught:
            suite.items(DataFolder(tmp_path))
        assert "There is no file" not in str(caught.value), suite.key
    assert set(SOURCES) <= {suite.key for suite in SUITES}
    assert all(len(source.revision) == 40 for source in SOURCES.values() if source.site == "GitHub")
