"""Signatures: who has no key can rebuild a bundle consistently and still makes none that the auditor's key accepts."""

import json
import stat

import pytest

from app.report.bundle import MANIFEST
from app.report.service import ReportService
from app.report.signing import KEY_FILE, Signer
from app.report.verify.run import OWN
from app.settings import Settings
from app.shared.errors import ServiceError
from tests.app.report.conftest import check_named, failures, files_of, with_file
from tests.app.report.forging import rebuilt
from tests.conftest import verifier


@pytest.fixture
def key(audited, tmp_path):
    """The auditor's public key, as somebody else has it."""
    path = tmp_path / "auditor.pem"
    path.write_text(audited.wired[Signer].public_key)
    return path


def checked(checker, bundle, folder, key, require_signature=False):
    path = folder / "bundle.zip"
    path.write_bytes(bundle)
    return checker.verify(path, key=key, require_signature=require_signature)


def renamed(report, files):
    report["session"]["name"] = "another"


def test_a_bundle_or_a_report_verifies_with_the_key_that_signed_it_alone(audited, checker, key, tmp_path):
    found = checked(checker, audited.bundles["empty"], tmp_path, key)
    assert found.ok
    assert check_named(found, "Signature").status == "passed"
    assert not [item for item in found.beyond if item.fields == ("signatures",)]
    path = tmp_path / "report.json"
    path.write_text(audited.wired[ReportService].json(audited.sessions["empty"]))
    assert checker.verify(path).ok
    assert set(failures(checker.verify(path, key=key))) == {"Signature"}
    key.write_text(Signer(tmp_path / "other" / "key.pem").public_key)
    assert set(failures(checked(checker, audited.bundles["empty"], tmp_path, key))) == {"Signature"}


def test_a_consistently_rebuilt_forgery_passes_without_a_key_and_fails_with_it_whoever_signed_it(
    audited, checker, key, tmp_path
):
    forgery = rebuilt(audited.bundles["empty"], renamed, tmp_path)
    assert checked(checker, forgery, tmp_path, None).ok
    assert set(failures(checked(checker, forgery, tmp_path, key))) == {"Signature"}
    manifest = json.loads(files_of(forgery)[MANIFEST])
    own = Signer(tmp_path / "forger" / "key.pem").sign(manifest)
    taken = json.loads(files_of(audited.bundles["empty"])[MANIFEST])["signatures"][0]
    for signature, sound in ((own, True), (taken, False)):
        manifest["signatures"] = [signature]
        signed = with_file(forgery, MANIFEST, json.dumps(manifest).encode())
        assert checked(checker, signed, tmp_path, None).ok == sound
        assert set(failures(checked(checker, signed, tmp_path, key))) == {"Signature"}


def test_a_bundle_that_nobody_known_signed_does_not_pass_as_signed_and_fails_where_a_signature_is_required(
    audited, checker, key, tmp_path
):
    manifest = json.loads(files_of(audited.bundles["empty"])[MANIFEST])
    forger = Signer(tmp_path / "forger" / "key.pem")
    own = audited.wired[Signer].fingerprint
    for signer, signatures in (("", []), (forger.fingerprint, [forger.sign(manifest)])):
        bundle = with_file(
            audited.bundles["empty"], MANIFEST, json.dumps({**manifest, "signatures": signatures}).encode()
        )
        found = checked(checker, bundle, tmp_path, None)
        assert found.ok
        assert (check_named(found, "Signature").status, found.code) == (("unknown", 0) if signer else ("unsigned", 3))
        assert signer in check_named(found, "Signature").detail
        assert [item for item in found.beyond if item.fields == ("signatures",)]
        assert set(failures(checked(checker, bundle, tmp_path, None, require_signature=True))) == {"Signature"}
    for named, name in ((None, OWN), (key, "auditor"), (tmp_path, "auditor")):
        found = checked(checker, audited.bundles["empty"], tmp_path, named, require_signature=True)
        assert found.ok
        assert all(part in check_named(found, "Signature").detail for part in (own, name))


def test_a_server_that_has_made_no_key_knows_none_and_makes_none(audited, tmp_path):
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'store.sqlite3'}", pipeline="none")
    found = checked(verifier(settings), audited.bundles["empty"], tmp_path, None)
    assert (found.ok, check_named(found, "Signature").status) == (True, "unknown")
    assert not (tmp_path / KEY_FILE).exists()


def test_the_key_is_made_once_for_its_owner_alone_and_a_damaged_one_is_left_as_it_is(tmp_path):
    path = tmp_path / "store" / "signing-key.pem"
    first, second = Signer(path), Signer(path)
    assert first.public_key == second.public_key
    assert first.sign({"a": 1}) == second.sign({"a": 1})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    for content in ("", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        path = tmp_path / "signing-key.pem"
        path.write_text(content)
        with pytest.raises(ServiceError, match="holds no Ed25519 key"):
            Signer(path)
        assert path.read_text() == content
