"""Verification: what was exported holds, and whatever was changed afterwards is named with its place."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.report.bundle import CALIBRATION, MANIFEST, REPORT, bundle_digest
from app.report.verify.findings import Verification
from app.report.verify.loaded import load
from app.report.verify.numbers import check_certified, check_summary
from app.report.verify.structure import check_table
from app.report.verify.thresholds import check_certificate, check_chains, check_thresholds
from app.shared.errors import ServiceError
from coft_core.model.fake import tiny_model
from tests.app.report.conftest import Audited, check_named, failures, files_of, with_file
from tests.app.report.forging import forged
from tests.conftest import verifier

Verify = Callable[..., Verification]
KINDS = (
    "joint", "greedy", "factorized", "uninformative", "mismatch", "other layout", "uncalibrated", "vanilla", "deleted",
    "empty",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_of_any_kind_of_session_verifies_and_replays(kind: str, audited: Audited, verify: Verify) -> None:
    found = verify(audited.bundles[kind], replay=True)
    assert failures(found) == {}
    assert found.ok
    assert found.bundle_digest == bundle_digest(audited.bundles[kind])
    replay = check_named(found, "Replay on the model")
    assert replay.status == ("skipped" if kind == "deleted" else "passed")


def test_a_session_with_thresholds_is_checked_from_the_calibrations_own_values(
    audited: Audited, verify: Verify
) -> None:
    found = verify(audited.bundles["joint"])
    assert "from the values of" in check_named(found, "Thresholds by step").detail
    assert check_named(found, "steps.csv").detail.startswith("1")
    assert check_named(found, "Verdict log").detail == "5 entries, chained by SHA-256"
    skipped = {check.name for check in found.checks if check.status == "skipped"}
    assert skipped == {"Steps from stored logits", "Replay on the model", "Calibration from its prompts"}


def test_what_only_the_model_can_tell_is_said_unless_it_was_asked(audited: Audited, verify: Verify) -> None:
    without = " ".join(item.reason for item in verify(audited.bundles["joint"]).beyond)
    replayed = " ".join(item.reason for item in verify(audited.bundles["joint"], replay=True).beyond)
    for words in ("those of the named model", "entropies", "draws", "sensitivity in logits"):
        assert words in without
        assert words not in replayed


def test_a_replay_masks_with_the_reports_sentinel_whatever_would_be_chosen_here(
    audited: Audited, verify: Verify, tmp_path: Path
) -> None:
    def left_to_the_model(data: dict[str, Any]) -> None:
        assert data["session"]["fingerprint"]["sentinel"] == "#"
        data["session"]["policy_settings"]["settings"]["sentinel"] = None

    found = verify(forged(audited.bundles["named sentinel"], left_to_the_model, tmp_path), replay=True)
    assert failures(found) == {}
    assert check_named(found, "Replay on the model").status == "passed"


def test_a_report_alone_is_checked_as_far_as_it_goes(audited: Audited, verify: Verify) -> None:
    found = verify(files_of(audited.bundles["joint"])[REPORT], name="report.json")
    assert found.ok
    assert found.bundle_digest is None
    assert "its bundle" in check_named(found, "steps.csv").detail
    assert "the report's own list" in check_named(found, "Thresholds by step").detail


@pytest.mark.parametrize("name", ["steps.csv", "candidates.csv", "annotations.csv", CALIBRATION, REPORT])
def test_a_file_with_one_changed_byte_is_named(name: str, audited: Audited, verify: Verify) -> None:
    files = files_of(audited.bundles["joint"])
    data = bytearray(files[name])
    place = data.rindex(b"0.") + 2 if name.endswith((".csv", ".json")) and b"0." in data else len(data) // 2
    data[place] = ord("7") if data[place] != ord("7") else ord("8")
    changed = with_file(audited.bundles["joint"], name, bytes(data))
    found = verify(changed)
    assert f"{name} was changed: its SHA-256 is not that of the manifest." in failures(found)["Files of the bundle"]


def test_a_missing_and_an_added_file_are_named(audited: Audited, verify: Verify) -> None:
    from app.report.bundle import pack

    files = files_of(audited.bundles["joint"])
    del files["steps.csv"]
    found = failures(verify(pack({**files, "notes.txt": b"x"})))
    assert set(found["Files of the bundle"]) == {
        "steps.csv is missing.",
        "notes.txt is in the bundle, and the manifest does not list it.",
    }
    assert found["steps.csv"] == ("steps.csv is missing.",)


@pytest.mark.parametrize(
    ("name", "column"),
    [("steps.csv", "p_masked"), ("candidates.csv", "log_p_fused"), ("annotations.csv", "verdict")],
)
def test_one_cell_that_differs_from_the_report_is_named_by_line_and_column(
    name: str, column: str, audited: Audited, verify: Verify
) -> None:
    lines = files_of(audited.bundles["joint"])[name].decode().split("\r\n")
    header, cells = lines[0].split(","), lines[1].split(",")
    at = header.index(column)
    cells[at] = "fair" if column == "verdict" else "0.125"
    lines[1] = ",".join(cells)
    found = verify(with_file(audited.bundles["joint"], name, "\r\n".join(lines).encode()))
    (problem,) = failures(found)[name]
    assert problem.startswith(f"{name}, line 2, column {column}: it says")


def step_of(report: dict[str, Any], index: int = 3) -> dict[str, Any]:
    step: dict[str, Any] = report["branches"][0]["steps"][index]
    return step


PLACE = "Branch 0, step 4"
FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str, str]] = {
    "a candidate's certificate": (
        lambda r: step_of(r)["candidates"][1].update(certified=not step_of(r)["candidates"][1]["certified"]),
        "Certified tokens", PLACE,
    ),
    "the margin": (lambda r: step_of(r).update(margin=9.0), "Margins, ratios and bounds", PLACE),
    "the size of the set": (lambda r: step_of(r).update(set_size=0), "Fallbacks, choices and sets", PLACE),
    "a step left out": (lambda r: r["branches"][1]["steps"].pop(0), "Branches and steps", "Branch 0/2:"),
    "a fork moved": (lambda r: r["branches"][1].update(fork_step=1), "Branches and steps", "Branch 0/2:"),
    "a verdict": (lambda r: r["log"][0].update(verdict="fair"), "Verdict log", "Entry 1 was changed"),
    "a note": (lambda r: r["log"][4].update(note="x"), "Verdict log", "Entry 5 was changed"),
    "a verdict left out": (lambda r: r["log"].pop(2), "Verdict log", "Entry 3 is missing"),
    "a count of the summary": (
        lambda r: r["summary"][0].update(certified=99), "Summary numbers", "Summary of branch 0: certified",
    ),
    "an extreme of the summary": (
        lambda r: r["summary"][0].update(largest_log_ratio=0.0), "Summary numbers", "largest_log_ratio",
    ),
    "a chain's certificate": (
        lambda r: r["summary"][0]["chain"]["sequence"].update(tau=0.5), "Certificates of whole chains", "Branch 0",
    ),
    "a listed threshold": (
        lambda r: r["thresholds"]["families"][0]["bins"][0].update(log_tau=-0.1), "Thresholds by step", "bin 1",
    ),
    "the risk level": (lambda r: r["session"].update(alpha=0.05), "Calibration and certificate", "risk level"),
    "lambda": (lambda r: r["session"].update(lam=0.9), "Prompt, spans and settings", "lam"),
    "a fingerprint's field": (
        lambda r: r["session"]["fingerprint"].update(weights="others"), "Prompt, spans and settings", "digest",
    ),
    "a span": (lambda r: r["session"]["spans"][0].update(end=999), "Prompt, spans and settings", "5 to 999"),
    "the number of masked tokens": (
        lambda r: r["session"]["policy_settings"]["preview"].update(masked_count=1), "Masked prompt", "Masked prompt",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGERIES)
def test_what_is_forged_together_with_every_table_and_digest_is_named_with_its_place(
    what: str, audited: Audited, verify: Verify, tmp_path: Path
) -> None:
    change, name, place = FORGERIES[what]
    found = failures(verify(forged(audited.bundles["joint"], change, tmp_path)))
    assert name in found, found
    assert any(place in problem for problem in found[name]), found[name]
    assert "Files of the bundle" not in found


def test_a_step_written_anew_from_other_numbers_is_found_by_replay_alone(
    audited: Audited, verify: Verify, tmp_path: Path
) -> None:
    """Numbers that fit each other can be made up; only the model tells them from its own."""

    def change(report: dict[str, Any]) -> None:
        step = step_of(report)
        for row in (*step["candidates"], step):
            for view in ("factual", "masked", "fused"):
                row[f"log_p_{view}"] -= 0.02
        step["margin"] -= 0.02
        for row in step["candidates"]:
            row["certified"] = min(row["log_p_masked"], row["log_p_fused"]) >= step["log_tau"]
        kept = [row for row in step["candidates"] if row["certified"]]
        step["set_size"] = max(len(kept), step["set_size"])
        step["certified_mass"] = math.fsum(math.exp(row["log_p_fused"]) for row in kept)

    bundle = forged(audited.bundles["joint"], change, tmp_path)
    summed = {"Summary numbers", "Certificates of whole chains", "Certified tokens", "Thresholds by step"}
    assert set(failures(verify(bundle))) <= summed
    replayed = failures(verify(bundle, replay=True))["Replay on the model"]
    assert any(problem.startswith(f"{PLACE}: log_p_") for problem in replayed)


def test_a_replay_on_another_model_stops_before_it_begins(audited: Audited, tmp_path: Path) -> None:
    path = tmp_path / "evidence.zip"
    path.write_bytes(audited.bundles["joint"])
    other = verifier(audited.settings, loader=lambda name, **_: tiny_model(seed=1))
    (problem,) = check_named(other.verify(path, replay=True), "Replay on the model").problems
    assert "other weights" in problem
    assert "load the very same model" in problem


def test_a_replay_says_which_token_comes_out_otherwise_and_goes_on_after_it(
    audited: Audited, verify: Verify, tmp_path: Path
) -> None:
    def change(report: dict[str, Any]) -> None:
        report["session"]["seed"] = report["session"]["policy_settings"]["settings"]["seed"] = 12345

    found = failures(verify(forged(audited.bundles["joint"], change, tmp_path), replay=True))
    assert set(found) == {"Replay on the model"}
    assert any("the emitted token" in problem for problem in found["Replay on the model"])


def test_another_calibration_in_place_of_the_sessions_own_is_found(audited: Audited, verify: Verify) -> None:
    other = files_of(audited.bundles["factorized"])[CALIBRATION]
    found = failures(verify(with_file(audited.bundles["joint"], CALIBRATION, other)))
    assert "Files of the bundle" in found
    assert any("digest of the calibration" in problem for problem in found["Digests in the report"])
    damaged = failures(verify(with_file(audited.bundles["joint"], CALIBRATION, b"no calibration")))
    assert "cannot be used" in damaged["Thresholds by step"][0]


def test_branches_that_do_not_hold_together_end_the_verification_with_their_own_problem(
    audited: Audited, verify: Verify
) -> None:
    files = files_of(audited.bundles["joint"])
    report = json.loads(files[REPORT])
    report["branches"][1]["parent_id"] = 404
    found = verify(with_file(audited.bundles["joint"], REPORT, json.dumps(report).encode()))
    assert "its parent is missing" in failures(found)["Branches and steps"][0]
    assert not found.ok


def test_the_newest_entries_of_a_log_cannot_be_cut_off_against_the_manifest(audited: Audited, verify: Verify) -> None:
    files = files_of(audited.bundles["joint"])
    report = json.loads(files[REPORT])
    del report["log"][-1]
    found = failures(verify(with_file(audited.bundles["joint"], REPORT, json.dumps(report).encode())))
    assert any("head of the verdict log" in problem for problem in found["Digests in the report"])
    assert any("log_entries" in problem for problem in found["Digests in the report"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: r.__setitem__("version", 99), "format 99"),
        (lambda r: r.__setitem__("kind", "poem"), "no report of an audit"),
        (lambda r: r.__setitem__("extra", 1), "extra"),
        (lambda r: r["session"].pop("prompt"), "session.prompt"),
        (lambda r: r["branches"][0]["steps"][0].__setitem__("log_tau", "low"), "branches.0.steps.0.log_tau"),
        (lambda r: r["branches"][0]["steps"][0].__setitem__("set_size", 1.5), "set_size"),
        (lambda r: r["session"]["policy_settings"].__setitem__("settings", {"nonsense": 1}), "settings"),
    ],
)
def test_a_report_of_another_form_is_refused_in_one_sentence(
    change: Callable[[dict[str, Any]], None], sentence: str, audited: Audited, verify: Verify
) -> None:
    report = json.loads(files_of(audited.bundles["joint"])[REPORT])
    change(report)
    with pytest.raises(ServiceError, match=sentence) as caught:
        verify(json.dumps(report).encode(), name="report.json")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_manifest_that_cannot_be_read_is_refused(audited: Audited, verify: Verify) -> None:
    for data, sentence in ((b"{", "manifest is damaged"), (b'{"kind": 1, "version": 1, "files": {}}', "of format")):
        with pytest.raises(ServiceError, match=sentence):
            verify(with_file(audited.bundles["joint"], MANIFEST, data))


def test_a_chain_certificate_of_an_earlier_version_is_skipped_and_said_to_claim_more(
    audited: Audited, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(audited.bundles["joint"])
    loaded = load(bundle)
    stripped = []
    for part in loaded.report.summary:
        sequence = {k: v for k, v in part.chain["sequence"].items() if k not in ("holds_for", "lengths")}
        stripped.append(part.model_copy(update={"chain": {**part.chain, "sequence": {**sequence, "certified": True}}}))
    report = loaded.report.model_copy(update={"summary": tuple(stripped)})
    # Of a session that says how large the vocabulary is, leaving out what the claim is for is a forgery.
    assert check_chains(replace(loaded, report=report)).status == "failed"
    settings = {name: value for name, value in report.session.policy_settings.items() if name != "vocabulary"}
    session = report.session.model_copy(update={"policy_settings": settings})
    older = replace(loaded, report=report.model_copy(update={"session": session}))
    assert check_chains(older).status == "skipped"
    assert check_table(older, "steps.csv").status == "passed"


def test_a_session_without_the_vocabularys_size_keeps_what_its_rule_said(audited: Audited, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(audited.bundles["joint"])
    loaded = load(bundle)
    settings = {**loaded.report.session.policy_settings}
    assert settings.pop("vocabulary") == tiny_model().vocabulary_size
    session = loaded.report.session.model_copy(update={"policy_settings": settings})
    states = {"certified": False, "state": "uninformative"}
    branches = tuple(
        own.model_copy(update={"steps": tuple(step.model_copy(update=states) for step in own.steps)})
        for own in loaded.report.branches
    )
    earlier = replace(loaded, report=loaded.report.model_copy(update={"session": session, "branches": branches}))
    today = replace(loaded, report=loaded.report.model_copy(update={"branches": branches}))
    assert [check_thresholds(one).status for one in (earlier, today)] == ["passed", "failed"]


def test_a_report_from_before_thresholds_could_be_too_weak_is_still_read(audited: Audited, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(audited.bundles["uninformative"])
    loaded = load(bundle)
    branches = tuple(
        own.model_copy(update={"steps": tuple(step.model_copy(update={"certified": True}) for step in own.steps)})
        for own in loaded.report.branches
    )
    summary = tuple(part.model_copy(update={"too_weak": None, "certificate": None}) for part in loaded.report.summary)
    older = loaded.report.model_copy(
        update={
            "branches": branches,
            "summary": summary,
            "session": loaded.report.session.model_copy(update={"certificate": "certified"}),
        }
    )
    found = replace(loaded, report=older)
    for check in (check_certificate, check_thresholds, check_certified, check_summary):
        assert check(found).problems == ()
    # Without that excuse the same claims are too much.
    today = replace(loaded, report=older.model_copy(update={"summary": loaded.report.summary}))
    assert check_certificate(today).status == "failed"
    assert check_certified(today).status == "failed"
