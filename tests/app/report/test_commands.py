"""The commands ``report``, ``verify`` and ``verdicts``: files, exit codes, and JSON for programs."""

import json

import pytest

from app.audit.service import AuditService
from app.cli import main
from app.report.bundle import MANIFEST
from app.report.service import ReportService
from app.report.signing import Signer
from tests.app.report.conftest import files_of, with_file


@pytest.fixture
def run(audited, monkeypatch, capsys):
    monkeypatch.setenv("COFT_DATABASE_URL", audited.settings.database_url)
    monkeypatch.setenv("COFT_PIPELINE", "none")

    def one(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return one


def test_a_report_is_written_in_every_format_and_its_bundle_verifies(audited, run, tmp_path):
    number = audited.sessions["joint"]
    for kind in ("csv", "json", "html", "zip", "bundle"):
        out = tmp_path / kind
        code, text, _ = run("report", number, "--format", kind, "--out", out)
        assert code == 0
        assert text.startswith(str(out))
        assert out.read_bytes() == audited.wired[ReportService].content(number, kind)
    digest = text.split("SHA-256 ")[1].split()[0]
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes((tmp_path / "bundle").read_bytes())
    code, text, _ = run("verify", bundle)
    assert code == 0
    assert digest in text
    assert "passed   Thresholds by step" in text
    assert "nothing contradicts the report" in text
    assert "What these checks cannot tell:" in text


@pytest.mark.slow
def test_a_formal_report_is_signed_by_options_that_no_other_format_takes(audited, run, tmp_path):
    number, out = audited.sessions["joint"], tmp_path / "formal.html"
    signed = ("--auditor", "R. Osei", "--question", "Why so?", "--language", "de")
    assert run("report", number, "--format", "formal", *signed, "--out", out)[0] == 0
    text = out.read_text("utf-8")
    assert "R. Osei" in text
    assert "Why so?" in text
    assert "Was nicht behauptet wird" in text
    assert run("report", number, "--format", "pdf", "--out", out)[0] == 0
    assert out.read_bytes().startswith(b"%PDF")
    code, _, error = run("report", number, "--format", "html", "--auditor", "R. Osei", "--out", out)
    assert (code, "has no auditor" in error) == (1, True)


def test_a_forged_or_no_bundle_ends_with_1_and_an_unsigned_one_with_3_and_they_say_why(audited, run, tmp_path):
    steps = files_of(audited.bundles["joint"])["steps.csv"].decode()
    path = tmp_path / "forged.zip"
    forged = with_file(audited.bundles["joint"], "steps.csv", steps.replace("unfair", "fair", 1).encode())
    path.write_bytes(forged)
    code, text, _ = run("verify", path)
    assert code == 1
    assert "FAILED   steps.csv" in text
    assert "column verdict" in " ".join(text.split())
    code, text, _ = run("verify", path, "--json")
    found = json.loads(text)
    assert (code, found["ok"]) == (1, False)
    assert {check["name"] for check in found["checks"] if check["status"] == "failed"} == {
        "Files of the bundle", "steps.csv",
    }  # fmt: skip
    manifest = {**json.loads(files_of(audited.bundles["joint"])[MANIFEST]), "signatures": []}
    path = tmp_path / "unsigned.zip"
    path.write_bytes(with_file(audited.bundles["joint"], MANIFEST, json.dumps(manifest).encode()))
    code, text, _ = run("verify", path)
    assert (code, "UNSIGNED Signature" in text, "IT IS NOT SIGNED" in text) == (3, True, True)
    assert run("verify", path, "--unsigned")[0] == 0
    assert run("verify", path, "--require-signature")[0] == 1
    path.write_bytes(audited.bundles["joint"])
    code, text, _ = run("verify", path, "--require-signature")
    assert (code, audited.wired[Signer].fingerprint in text) == (0, True)
    path = tmp_path / "x.zip"
    path.write_bytes(b"nonsense")
    for file in (path, tmp_path / "none.zip", tmp_path / "none.json"):
        code, out, error = run("verify", file)
        assert (code, out) == (1, "")
        assert error.count("\n") == 1


def test_verdicts_are_given_reviewed_decided_compared_and_checked(audited, run):
    number = audited.sessions["greedy"]
    branch = audited.wired[AuditService].view(number).branches[0].id
    place = ("--branch", branch, "--first", 2)
    given = run("verdicts", "add", number, "unfair", "--reviewer", "A", *place, "--note", "why")[1]
    assert "A: unfair on step 2 of branch 0: why" in given
    assert "blind review" in run("verdicts", "start", number, "--reviewer", "B")[1]
    run("verdicts", "add", number, "fair", "--reviewer", "B", *place, "--last", 2)
    shown = run("verdicts", "show", number, "--reviewer", "B")[1]
    assert "unfair" not in shown
    assert "1 entry is hidden" in shown
    assert "has finished" in run("verdicts", "finish", number, "--reviewer", "B")[1]
    assert "decides fair" in run("verdicts", "decide", number, "fair", "--reviewer", "C", *place)[1]
    agreement = json.loads(run("verdicts", "agreement", "A", "B", "--session", number, "--json")[1])
    assert (agreement["result"]["pairs"], agreement["result"]["kappa"], agreement["blind_pairs"]) == (1, None, 1)
    code, text, _ = run("verdicts", "check", number)
    assert (code, "5 entries are as written" in text) == (0, True)
    assert run("verdicts", "add", number, "withdraw", "--reviewer", "A", *place)[0] == 0
    log = json.loads(run("verdicts", "show", number, "--json")[1])["log"]
    assert log[-1]["verdict"] is None
