"""A session of another server can be read, read again and handed on, and nothing of it can be changed."""

import io
import json
import zipfile
from dataclasses import replace

import pytest

from app.audit.reread import RereadService
from app.audit.rereading import RereadRequest
from app.audit.service import AuditService
from app.bootstrap import services
from app.report.bundle import MANIFEST, REPORT, pack
from app.report.imports import BundleImports
from app.report.service import ReportService
from app.report.signing import Signer, fingerprint_of, read_public_key
from app.report.verify.run import BundleVerifier
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.sessions.service import LibraryQuery, SessionLibrary
from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.session_views import AuditViews
from db.imports import ImportsRepository
from db.sessions import SessionsRepository
from db.types import ImportedSessionError
from db.verdicts import AnnotationsRepository, first_break
from tests.app.report.conftest import audit, calibrate, files_of, with_file
from tests.conftest import load_tiny


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A server of its own, with one session there already so that numbers differ, and none of the models."""
    folder = tmp_path_factory.mktemp("elsewhere")

    def no_model(name, **_):
        raise AssertionError("An imported session needs no model.")

    settings = Settings(database_url=f"sqlite:///{folder / 'store.sqlite3'}", pipeline="none")
    with services(settings, loader=no_model) as wired:
        yield wired


@pytest.fixture
def path(audited, tmp_path):
    bundle = tmp_path / "evidence.zip"
    bundle.write_bytes(audited.bundles["joint"])
    return bundle


def public_key(audited, folder):
    file = folder / "key.pem"
    file.write_text(audited.wired[Signer].public_key)
    return file


def chains(wired, session_id):
    sessions = wired[SessionsRepository]
    return [sessions.chain(branch.id) for branch in sessions.branches(session_id)]


def test_an_imported_session_is_what_it_was_and_says_where_it_came_from_and_who_signed_it(audited, elsewhere, path):
    key = public_key(audited, path.parent)
    imported = elsewhere[BundleImports].add(path, key)
    source, here = audited.sessions["joint"], imported.session_id
    assert chains(elsewhere, here) == chains(audited.wired, source)
    theirs, ours = audited.wired[SessionsRepository], elsewhere[SessionsRepository]
    assert sorted(ours.times(here).values()) == sorted(theirs.times(source).values())
    before, after = theirs.get(source), ours.get(here)
    kept = ("name", "prompt", "spans", "fingerprint", "certificate", "created_at", "updated_at", "seed", "alpha")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    view = elsewhere[AuditService].view(here)
    assert view.chain == audited.wired[AuditService].view(source).chain
    said = view.warnings[-1]
    assert f"session {source} of another server" in said
    assert f"key with SHA-256 {fingerprint_of(read_public_key(key))}" in said
    assert imported.signature.status == "passed"
    log = elsewhere[AnnotationsRepository].history(here)
    assert [entry.digest for entry in log] == [e.digest for e in audited.wired[AnnotationsRepository].history(source)]
    assert first_break([(entry.content, entry.previous, entry.digest) for entry in log]) is None
    assert [entry.id for entry in elsewhere[SessionLibrary].search(LibraryQuery(tag="imported")).entries] == [here]


def test_what_is_exported_again_is_the_bundle_that_came_and_still_verifies(audited, elsewhere, path):
    here = elsewhere[BundleImports].add(path).session_id
    assert elsewhere[BundleImports].add(path).signature.status == "unknown"
    again = path.with_name("again.zip")
    again.write_bytes(elsewhere[ReportService].bundle(here))
    assert again.read_bytes() == path.read_bytes()
    assert elsewhere[BundleVerifier].verify(again, key=public_key(audited, path.parent)).ok
    assert elsewhere[ReportService].json(here).encode() == files_of(path.read_bytes())[REPORT]
    assert "another server" in elsewhere[ReportService].html(here)
    with pytest.raises(ServiceError, match=r"calibration_prompts\.json"):
        elsewhere[ReportService].bundle(here, with_prompts=True)


def test_the_same_bundle_is_stored_once_and_anew_after_its_session_is_deleted(elsewhere, path):
    first = elsewhere[BundleImports].add(path)
    second = elsewhere[BundleImports].add(path)
    assert (second.session_id, second.already) == (first.session_id, True)
    elsewhere[AuditService].delete(first.session_id)
    third = elsewhere[BundleImports].add(path)
    assert not third.already
    assert third.session_id != first.session_id


def test_nothing_of_an_imported_session_can_be_changed(elsewhere, path):
    here = elsewhere[BundleImports].add(path).session_id
    sessions, audits = elsewhere[SessionsRepository], elsewhere[AuditService]
    root, fork = sessions.branches(here)
    before = elsewhere[ReportService].csv(here), sessions.get(here)
    step = sessions.chain(root.id)[-1]
    request = VerdictRequest(here, "R. Osei", "fair", root.id, 1)
    refused = (
        lambda: audits.fork(here, root.id, 1, step.token_id),
        lambda: sessions.append_step(root.id, replace(step, index=step.index + 1)),
        lambda: sessions.add_branch(here, root.id, 0, "0/0:9"), lambda: sessions.set_finished(root.id, None),
        lambda: elsewhere[VerdictService].add(request),
        lambda: elsewhere[VerdictService].comment(replace(request, verdict=None, note="a note")),
        lambda: elsewhere[VerdictService].start_review(here, "N. New"),
        lambda: elsewhere[SessionLibrary].rename(here, "mine"), lambda: elsewhere[SessionLibrary].prune(here, fork.id),
        lambda: elsewhere[SessionLibrary].rename_branch(here, fork.id, "mine"),
    )  # fmt: skip
    for change in refused:
        with pytest.raises((ImportedSessionError, ServiceError), match="read-only"):
            change()
    assert (elsewhere[ReportService].csv(here), sessions.get(here)) == before


def test_it_is_read_again_at_another_lambda_from_the_logits_that_came_with_it(tmp_path):
    source = Settings(database_url=f"sqlite:///{tmp_path / 'a' / 'store.sqlite3'}", pipeline="none")
    target = Settings(database_url=f"sqlite:///{tmp_path / 'b' / 'store.sqlite3'}", pipeline="none")
    with services(source, loader=load_tiny) as there, services(target, loader=load_tiny) as here:
        number = audit(there, "with logits", calibration_id=calibrate(there, tmp_path), max_new_tokens=5)
        (tmp_path / "evidence.zip").write_bytes(there[ReportService].bundle(number))
        imported = here[BundleImports].add(tmp_path / "evidence.zip").session_id
        one = there[RereadService].read(RereadRequest(number, lam=0.2))
        other = here[RereadService].read(RereadRequest(imported, lam=0.2))
        assert [(row.then, row.now) for row in one.rows] == [(row.then, row.now) for row in other.rows]
        assert one.rows
        assert here[AuditViews].drift(here[SessionsRepository].get(imported)).audits == 0


def resealed(bundle, change):
    """A bundle whose report was changed and whose manifest was made to fit, signed by nobody."""
    files = files_of(bundle)
    report = json.loads(files[REPORT])
    change(report)
    return with_file(bundle, REPORT, json.dumps(report).encode())


HOSTILE = {
    "changed token": lambda b: resealed(b, lambda r: r["branches"][0]["steps"][0].update(token=" other")),
    "unknown schema": lambda b: resealed(b, lambda r: r.update(version=99)),
    "unknown field": lambda b: resealed(b, lambda r: r["session"].update(shell="rm")),
    "unknown manifest": lambda b: with_file(
        b, MANIFEST, json.dumps({**json.loads(files_of(b)[MANIFEST]), "version": 2}).encode()
    ),
    "path outside": lambda b: pack({**files_of(b), "../../outside": b"x"}),
    "absolute path": lambda b: pack({**files_of(b), "/etc/passwd": b"x"}),
    "further file": lambda b: pack({**files_of(b), "run.sh": b"x"}),
    "missing report": lambda b: pack({name: data for name, data in files_of(b).items() if name != REPORT}),
    "cut": lambda b: b[: len(b) // 2],
    "no zip": lambda b: b"PK" + bytes(100),
}


def test_a_hostile_bundle_or_one_by_an_untrusted_key_is_refused_in_one_sentence_and_leaves_nothing(
    audited, elsewhere, path
):
    before = elsewhere[SessionsRepository].count()
    for name, made in HOSTILE.items():
        path.write_bytes(made(audited.bundles["joint"]))
        with pytest.raises(ServiceError) as refused:
            elsewhere[BundleImports].add(path)
        assert "\n" not in str(refused.value), name
        assert elsewhere[SessionsRepository].count() == before, name
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files_of(audited.bundles["joint"]).items():
            archive.writestr(name, data)
        archive.writestr("zeros.csv", bytes(80 << 20))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ServiceError, match="more than 100 times its size"):
        elsewhere[BundleImports].add(path)
    path.write_bytes(audited.bundles["joint"])
    key = path.with_name("own.pem")
    key.write_text(elsewhere[Signer].public_key)
    with pytest.raises(ServiceError, match=elsewhere[Signer].fingerprint):
        elsewhere[BundleImports].add(path, key)


def test_an_import_that_cannot_be_written_to_its_end_leaves_nothing(audited, elsewhere, path, monkeypatch):
    path.write_bytes(audited.bundles["greedy"])
    monkeypatch.setattr("db.imports.insert_past_step", lambda *_: 1 / 0)
    before = elsewhere[SessionsRepository].count()
    with pytest.raises(ZeroDivisionError):
        elsewhere[BundleImports].add(path)
    assert elsewhere[SessionsRepository].count() == before
    monkeypatch.undo()
    imported = elsewhere[BundleImports].add(path)
    assert elsewhere[ImportsRepository].bundle(imported.session_id) == path.read_bytes()
