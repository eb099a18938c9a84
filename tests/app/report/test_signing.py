"""Signatures: who has no key can rebuild a bundle consistently and still makes none that the auditor's key accepts."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from app.report.bundle import MANIFEST
from app.report.service import ReportService
from app.report.signing import Signer
from app.report.verify.run import BundleVerifier
from app.shared.errors import ServiceError
from tests.app.report.conftest import Audited, check_named, failures, files_of, with_file
from tests.app.report.forging import rebuilt


@pytest.fixture
def key(audited: Audited, tmp_path: Path) -> Path:
    """The auditor's public key, as somebody else has it."""
    path = tmp_path / "auditor.pem"
    path.write_text(audited.wired[Signer].public_key)
    return path


def checked(checker: BundleVerifier, bundle: bytes, folder: Path, key: Path | None):
    path = folder / "bundle.zip"
    path.write_bytes(bundle)
    return checker.verify(path, key=key)


def renamed(report, files) -> None:
    report["session"]["name"] = "another"


def test_a_bundle_verifies_with_the_key_that_signed_it_and_fails_with_another(audited, checker, key, tmp_path):
    found = checked(checker, audited.bundles["joint"], tmp_path, key)
    assert found.ok
    assert check_named(found, "Signature").status == "passed"
    assert not [item for item in found.beyond if item.fields == ("signatures",)]
    key.write_text(Signer(tmp_path / "other" / "key.pem").public_key)
    assert set(failures(checked(checker, audited.bundles["joint"], tmp_path, key))) == {"Signature"}


def test_a_consistently_rebuilt_forgery_passes_without_a_key_and_fails_with_it(audited, checker, key, tmp_path):
    forgery = rebuilt(audited.bundles["joint"], renamed, tmp_path)
    assert checked(checker, forgery, tmp_path, None).ok
    assert set(failures(checked(checker, forgery, tmp_path, key))) == {"Signature"}


def test_a_forgery_signed_with_the_forgers_own_key_or_with_the_old_signature_fails(audited, checker, key, tmp_path):
    forgery = rebuilt(audited.bundles["joint"], renamed, tmp_path)
    manifest = json.loads(files_of(forgery)[MANIFEST])
    own = Signer(tmp_path / "forger" / "key.pem").sign(manifest)
    taken = json.loads(files_of(audited.bundles["joint"])[MANIFEST])["signatures"][0]
    for signature, sound in ((own, True), (taken, False)):
        manifest["signatures"] = [signature]
        signed = with_file(forgery, MANIFEST, json.dumps(manifest).encode())
        assert checked(checker, signed, tmp_path, None).ok == sound
        assert set(failures(checked(checker, signed, tmp_path, key))) == {"Signature"}


def test_an_unsigned_report_fails_where_a_key_is_asked_for(audited, checker, key, tmp_path):
    path = tmp_path / "report.json"
    path.write_text(audited.wired[ReportService].json(audited.sessions["joint"]))
    assert checker.verify(path).ok
    assert set(failures(checker.verify(path, key=key))) == {"Signature"}


def test_the_key_is_made_once_for_its_owner_alone(tmp_path):
    path = tmp_path / "store" / "signing-key.pem"
    first, second = Signer(path), Signer(path)
    assert first.public_key == second.public_key
    assert first.sign({"a": 1}) == second.sign({"a": 1})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("content", ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_damaged_key_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "signing-key.pem"
    path.write_text(content)
    with pytest.raises(ServiceError, match="holds no Ed25519 key"):
        Signer(path)
    assert path.read_text() == content


def test_a_file_that_is_no_public_key_is_refused_in_one_sentence(audited, checker, tmp_path):
    wrong = tmp_path / "wrong.pem"
    for text in ("", "no key"):
        wrong.write_text(text)
        with pytest.raises(ServiceError, match="no public key in PEM"):
            checked(checker, audited.bundles["joint"], tmp_path, wrong)
