"""Verification: what was exported holds, and whatever was changed afterwards is named with its place."""

import json
from dataclasses import replace

import pytest

from app.report.bundle import CALIBRATION, MANIFEST, REPORT, bundle_digest, pack
from app.report.verify.loaded import load
from app.report.verify.steps import (
    check_certificate,
    check_certified,
    check_chains,
    check_thresholds,
)
from app.report.verify.structure import check_tables
from app.shared.errors import ServiceError
from coft_core.model.fake import tiny_model
from tests.app.report.conftest import check_named, failures, files_of, with_file
from tests.app.report.forging import forged
from tests.conftest import verifier

KINDS = (
    "joint", "greedy", "factorized", "uninformative", "mismatch", "other layout", "uncalibrated", "vanilla", "deleted",
    "empty",
)  # fmt: skip


def test_a_bundle_of_any_kind_of_session_verifies_and_replays(audited, verify):
    for kind in KINDS:
        found = verify(audited.bundles[kind], replay=True)
        assert failures(found) == {}, kind
        assert found.ok
        assert found.bundle_digest == bundle_digest(audited.bundles[kind])
        assert check_named(found, "Replay on the model").status == ("skipped" if kind == "deleted" else "passed")


def test_a_session_with_thresholds_is_checked_from_the_calibrations_own_values_and_without_its_model(audited, verify):
    found = verify(audited.bundles["joint"])
    assert "from the values of" in check_named(found, "Thresholds by step").detail
    assert check_named(found, "steps.csv").detail.startswith("1")
    assert check_named(found, "Verdict log").detail.startswith("5 entries")
    skipped = {check.name for check in found.checks if check.status == "skipped"}
    assert skipped == {"Steps from stored logits", "Replay on the model", "Calibration from its prompts"}
    # What only the model can tell is said unless it was asked.
    without = " ".join(item.reason for item in found.beyond)
    replayed = " ".join(item.reason for item in verify(audited.bundles["joint"], replay=True).beyond)
    for words in ("those of the named model", "entropies", "draws", "sensitivity in logits"):
        assert words in without
        assert words not in replayed


def test_a_replay_masks_with_the_reports_sentinel_whatever_would_be_chosen_here(audited, verify, tmp_path):
    def left_to_the_model(data):
        assert data["session"]["fingerprint"]["sentinel"] == "#"
        data["session"]["policy_settings"]["settings"]["sentinel"] = None

    found = verify(forged(audited.bundles["named sentinel"], left_to_the_model, tmp_path), replay=True)
    assert failures(found) == {}
    assert check_named(found, "Replay on the model").status == "passed"


def test_a_report_alone_is_checked_as_far_as_it_goes(audited, verify):
    found = verify(files_of(audited.bundles["joint"])[REPORT], name="report.json")
    assert found.ok
    assert found.bundle_digest is None
    assert "its bundle" in check_named(found, "steps.csv").detail
    assert "the report's own list" in check_named(found, "Thresholds by step").detail


def test_a_file_with_one_changed_byte_is_named(audited, verify):
    for name in ("steps.csv", "candidates.csv", "annotations.csv", CALIBRATION, REPORT):
        data = bytearray(files_of(audited.bundles["joint"])[name])
        place = data.rindex(b"0.") + 2 if name.endswith((".csv", ".json")) and b"0." in data else len(data) // 2
        data[place] = ord("7") if data[place] != ord("7") else ord("8")
        found = failures(verify(with_file(audited.bundles["joint"], name, bytes(data))))
        assert any(problem.startswith(f"{name} was changed") for problem in found["Files of the bundle"])


def test_a_missing_and_an_added_file_are_named(audited, verify):
    files = files_of(audited.bundles["joint"])
    del files["steps.csv"]
    found = failures(verify(pack({**files, "notes.txt": b"x"})))
    assert {problem.split()[0] for problem in found["Files of the bundle"]} == {"steps.csv", "notes.txt"}
    assert len(found["Files of the bundle"]) == 2
    assert found["steps.csv"] == ("steps.csv is missing.",)


def test_one_cell_that_differs_from_the_report_is_named_by_line_and_column(audited, verify):
    files, places = files_of(audited.bundles["joint"]), {}
    for name, column in (
        ("steps.csv", "p_masked"), ("candidates.csv", "log_p_fused"), ("annotations.csv", "verdict"),
    ):  # fmt: skip
        lines = files[name].decode().split("\r\n")
        cells = lines[1].split(",")
        cells[lines[0].split(",").index(column)] = "fair" if column == "verdict" else "0.125"
        files[name] = "\r\n".join([lines[0], ",".join(cells), *lines[2:]]).encode()
        places[name] = f"{name}, line 2, column {column}:"
    found = failures(verify(pack(files)))
    for name, place in places.items():
        (problem,) = found[name]
        assert problem.startswith(place)


def step_of(report, index=3):
    return report["branches"][0]["steps"][index]


def controls_of(report):
    return report["controls"][0]["controls"]


PLACE = "Branch 0, step 4"
FORGERIES = (
    (
        (
            lambda r: step_of(r)["candidates"][1].update(certified=not step_of(r)["candidates"][1]["certified"]),
            "Certified tokens", PLACE,
        ),
        (lambda r: step_of(r).update(margin=9.0), "Margins, ratios and bounds", PLACE),
        (lambda r: step_of(r).update(set_size=0), "Certified tokens", PLACE),
        (lambda r: r["log"][0].update(verdict="fair"), "Verdict log", "Entry 1 was changed"),
        (lambda r: r["summary"][0].update(certified=99), "Summary numbers", "Summary of branch 0: certified"),
        (lambda r: controls_of(r).update(evidence=40.0), "Controls", "the evidence is stated as 40"),
        (lambda r: controls_of(r)["families"][0]["p_values"].__setitem__(0, 0.001), "Controls", "the p-values"),
        (lambda r: r["summary"][0].update(largest_log_ratio=0.0), "Summary numbers", "largest_log_ratio"),
        (lambda r: r["summary"][0]["chain"]["sequence"].update(tau=0.5), "Certificates of whole chains", "Branch 0"),
        (lambda r: r["thresholds"]["families"][0]["bins"][0].update(log_tau=-0.1), "Thresholds by step", "bin 1"),
        (lambda r: r["session"]["policy_settings"]["preview"].update(masked_count=1), "Masked prompt", "Masked prompt"),
    ),
    (
        (lambda r: controls_of(r)["families"][0]["marked"]["effects"].pop(), "Controls", "rows differ in length"),
        (lambda r: r["session"].update(alpha=0.05), "Calibration and certificate", "risk level"),
        (lambda r: r["session"].update(lam=0.9), "Prompt, spans and settings", "lam"),
        (lambda r: r["session"]["fingerprint"].update(weights="others"), "Prompt, spans and settings", "digest"),
        (lambda r: r["log"].pop(2), "Verdict log", "Entry 3 is missing"),
    ),
    ((lambda r: r["session"]["spans"][0].update(end=999), "Prompt, spans and settings", "5 to 999"),),
    ((lambda r: r["branches"][1]["steps"].pop(0), "Branches and steps", "Branch 0/2:"),),
    ((lambda r: r["branches"][1].update(fork_step=1), "Branches and steps", "Branch 0/2:"),),
)  # fmt: skip
"""What is forged together, with the check that finds it and the place that it names."""


def test_what_is_forged_together_with_every_table_and_digest_is_named_with_its_place(audited, verify, tmp_path):
    for forgeries in FORGERIES:
        bundle = forged(
            audited.bundles["joint"], lambda report, all=forgeries: [one(report) for one, *_ in all], tmp_path
        )
        found = failures(verify(bundle))
        for _, name, place in forgeries:
            assert any(place in problem for problem in found[name]), (name, place, found)
        assert "Files of the bundle" not in found


def test_a_replay_on_another_model_stops_before_it_begins(audited, tmp_path):
    path = tmp_path / "evidence.zip"
    path.write_bytes(audited.bundles["joint"])
    other = verifier(audited.settings, loader=lambda name, **_: tiny_model(seed=1))
    (problem,) = check_named(other.verify(path, replay=True), "Replay on the model").problems
    assert "other weights" in problem
    assert "load the very same model" in problem


def test_another_calibration_in_place_of_the_sessions_own_is_found(audited, verify):
    other = files_of(audited.bundles["factorized"])[CALIBRATION]
    found = failures(verify(with_file(audited.bundles["joint"], CALIBRATION, other)))
    assert "Files of the bundle" in found
    assert any("digest of the calibration" in problem for problem in found["Digests in the report"])
    damaged = failures(verify(with_file(audited.bundles["joint"], CALIBRATION, b"no calibration")))
    assert "cannot be used" in damaged["Thresholds by step"][0]


def test_branches_that_do_not_hold_together_and_a_log_that_was_cut_off_are_named(audited, verify):
    report = json.loads(files_of(audited.bundles["joint"])[REPORT])
    last = report["log"].pop()
    found = failures(verify(with_file(audited.bundles["joint"], REPORT, json.dumps(report).encode())))
    for name in ("head of the verdict log", "log_entries"):
        assert any(name in problem for problem in found["Digests in the report"])
    report["log"].append(last)
    report["branches"][1]["parent_id"] = 404
    found = verify(with_file(audited.bundles["joint"], REPORT, json.dumps(report).encode()))
    assert "its parent is missing" in failures(found)["Branches and steps"][0]
    assert not found.ok


def test_a_report_of_another_form_is_refused_in_one_sentence(audited, verify):
    text = files_of(audited.bundles["joint"])[REPORT]
    for change, place in (
        (lambda r: r.update(version=99), "format 99"), (lambda r: r.update(kind="poem"), "no report of an audit"),
        (lambda r: r.update(extra=1), "extra"), (lambda r: r["session"].pop("prompt"), "session.prompt"),
        (lambda r: step_of(r, 0).update(log_tau="low"), "branches.0.steps.0.log_tau"),
        (lambda r: step_of(r, 0).update(set_size=1.5), "set_size"),
        (lambda r: r["session"]["policy_settings"].update(settings={"nonsense": 1}), "settings"),
    ):  # fmt: skip
        report = json.loads(text)
        change(report)
        with pytest.raises(ServiceError, match=place) as caught:
            verify(json.dumps(report).encode(), name="report.json")
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith(".")
    for data, told in ((b"{", "manifest is damaged"), (b'{"kind": 1, "version": 1, "files": {}}', "of format")):
        with pytest.raises(ServiceError, match=told):
            verify(with_file(audited.bundles["joint"], MANIFEST, data))


def loaded_from(audited, kind, folder):
    (folder / "bundle.zip").write_bytes(audited.bundles[kind])
    return load(folder / "bundle.zip")


def test_a_chain_certificate_of_an_earlier_version_is_skipped_and_said_to_claim_more(audited, tmp_path):
    loaded = loaded_from(audited, "joint", tmp_path)
    stripped = []
    for part in loaded.report.summary:
        sequence = {k: v for k, v in part.chain["sequence"].items() if k not in ("holds_for", "lengths")}
        stripped.append(replace(part, chain={**part.chain, "sequence": {**sequence, "certified": True}}))
    report = replace(loaded.report, summary=tuple(stripped))
    # Of a session that says how large the vocabulary is, leaving out what the claim is for is a forgery.
    assert check_chains(replace(loaded, report=report)).status == "failed"
    settings = {name: value for name, value in report.session.policy_settings.items() if name != "vocabulary"}
    session = replace(report.session, policy_settings=settings)
    older = replace(loaded, report=replace(report, session=session))
    assert check_chains(older).status == "skipped"
    assert check_tables(older)[0].status == "passed"


def test_a_session_without_the_vocabularys_size_keeps_what_its_rule_said(audited, tmp_path):
    loaded = loaded_from(audited, "joint", tmp_path)
    settings = {**loaded.report.session.policy_settings}
    assert settings.pop("vocabulary") == tiny_model().vocabulary_size
    session = replace(loaded.report.session, policy_settings=settings)
    states = {"certified": False, "state": "uninformative"}
    branches = tuple(
        replace(own, steps=tuple(replace(step, **states) for step in own.steps)) for own in loaded.report.branches
    )
    earlier = replace(loaded, report=replace(loaded.report, session=session, branches=branches))
    today = replace(loaded, report=replace(loaded.report, branches=branches))
    assert [check_thresholds(one).status for one in (earlier, today)] == ["passed", "failed"]


def test_thresholds_that_say_nothing_certify_no_token_and_no_session(audited, tmp_path):
    loaded = loaded_from(audited, "uninformative", tmp_path)
    branches = tuple(
        replace(own, steps=tuple(replace(step, certified=True) for step in own.steps)) for own in loaded.report.branches
    )
    session = replace(loaded.report.session, certificate="certified")
    claiming = replace(loaded, report=replace(loaded.report, branches=branches, session=session))
    assert [check(claiming).status for check in (check_certificate, check_certified)] == ["failed", "failed"]
