"""Archives: the same bytes for the same content, and nothing from elsewhere that could do harm."""

import io
import json
import stat
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import pytest

from app.report import bundle as archive
from app.report.bundle import PROMPTS_FILE as PROMPTS
from app.report.bundle import pack, prompts_file, prompts_from, unpack
from app.report.service import ReportService
from app.shared.errors import ServiceError
from app.shared.files import write_bytes
from coft_core.text.user_list import UserList
from coft_core.types import UserTerm
from tests.app.report.conftest import files_of


def zipped(entries):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for entry, data in entries:
            made.writestr(entry, data)
    return buffer.getvalue()


def link(name):
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return entry


def test_what_was_packed_comes_back_and_no_clock_shows_in_its_bytes(tmp_path):
    files = {"a.txt": b"one" * 1000, "b.zip": bytes(range(256))}
    assert pack(files) == pack(files)
    path = write_bytes(tmp_path / "folder" / "x.zip", pack(files))
    assert unpack(path) == files
    with zipfile.ZipFile(path) as opened:
        assert {entry.date_time for entry in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert opened.getinfo("a.txt").compress_size < 100
    assert [item.name for item in path.parent.iterdir()] == ["x.zip"]


def test_the_same_session_gives_the_same_bundle_and_html_every_time(audited):
    number = audited.sessions["joint"]
    for kind in ("bundle", "html", "json", "zip", "csv"):
        assert audited.wired[ReportService].content(number, kind) == audited.wired[ReportService].content(number, kind)
    assert audited.wired[ReportService].bundle(number) == audited.bundles["joint"]


def test_an_archive_that_is_no_bundle_is_refused_in_one_sentence(verify):
    for data, sentence in (
        (b"", "cannot be read as a bundle"), (b"not an archive at all", "cannot be read as a bundle"),
        (zipped([("../evil.txt", b"x")]), "plain file"), (zipped([("/etc/passwd", b"x")]), "plain file"),
        (zipped([("folder/file.txt", b"x")]), "plain file"), (zipped([("a\\b", b"x")]), "plain file"),
        (zipped([("folder/", b"")]), "plain file"), (zipped([(link("passwd"), b"/etc/passwd")]), "plain file"),
        (zipped([(f"{i}.txt", b"") for i in range(65)]), "at most 64"),
        (zipped([("readme.txt", b"hello")]), "has no manifest.json"),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match=sentence) as caught:
            verify(data)
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith(".")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_stands_twice_in_an_archive_is_refused(verify):
    with pytest.raises(ServiceError, match="twice"):
        verify(zipped([("report.json", b"{}"), ("report.json", b"[]")]))


def test_a_bundle_that_is_cut_short_or_damaged_is_refused(audited, verify):
    for share in (0.2, 0.5, 0.9, 0.999):
        bundle = audited.bundles["joint"]
        # Its last file is an archive too, which can be all that is found in the end of a bundle.
        with pytest.raises(ServiceError, match=r"damaged, cut short|no manifest"):
            verify(bundle[: int(len(bundle) * share)])
    bundle = bytearray(audited.bundles["joint"])
    bundle[len(bundle) // 3] ^= 0xFF
    with pytest.raises(ServiceError, match="cannot be read"):
        verify(bytes(bundle))


def test_an_archive_that_unpacks_to_too_much_is_not_read(audited, verify, monkeypatch):
    largest = max(map(len, files_of(audited.bundles["joint"]).values()))
    monkeypatch.setattr(archive, "LARGEST_FILE", largest - 1)
    with pytest.raises(ServiceError, match="larger than"):
        verify(audited.bundles["joint"])
    monkeypatch.setattr(archive, "LARGEST_FILE", largest)
    monkeypatch.setattr(archive, "LARGEST_TOTAL", largest)
    with pytest.raises(ServiceError, match="unpacks to more than"):
        verify(audited.bundles["joint"])


def test_a_bundle_has_the_calibrations_prompts_only_where_they_are_asked_for(audited):
    exports, number = audited.wired[ReportService], audited.sessions["joint"]
    assert PROMPTS not in files_of(exports.content(number, "bundle"))
    file = files_of(exports.content(number, "bundle-with-prompts"))[PROMPTS]
    assert len(json.loads(file)["rows"]) == 40
    stored = SimpleNamespace(**json.loads(file)["prompt_set"])
    stored.digest = stored.sha256
    for listed in (None, UserList("own", (UserTerm("nurse", keep=True),))):
        made_of = replace(prompts_from(file), user_list=listed)
        assert prompts_from(prompts_file(made_of, stored)) == made_of
    assert prompts_file(prompts_from(file), stored) == file
    for kind in ("uncalibrated", "deleted"):
        with pytest.raises(ServiceError, match="choose the bundle without"):
            exports.content(audited.sessions[kind], "bundle-with-prompts")
