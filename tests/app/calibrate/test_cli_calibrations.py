"""Calibrations from the command line: every setting of a request, resuming, and reading what was made."""

import json
from threading import Event

import pytest

import coft_core as cc
from app.calibrate.service import CalibrationService
from app.jobs.service import JobContext, JobService
from app.shared.audits import CalibrationRequest
from app.shared.commands import STOPPED
from app.shared.errors import JobCancelled

MODEL = ("--model", "tiny", "--top-p", "0.9")


@pytest.fixture
def asked(monkeypatch):
    """The requests that commands submit; nothing is calibrated."""
    found = []

    def submit(self, prompts, request):
        found.append((prompts, request))
        raise cc.CoftError("enough")

    monkeypatch.setattr(CalibrationService, "submit", submit)
    return found


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "ward.csv"
    who = ("He", "The Black man")
    rows = [f"{who[i % 2]} said number {i},and wrote {i} down,{'ab'[i % 2]},{1 + i % 2}" for i in range(60)]
    path.write_text("\n".join(["text,answer,group,weight", *rows]) + "\n")
    return path


def test_every_setting_of_a_request_is_an_option(command, asked, prompts, tmp_path):
    deployment = tmp_path / "in_use.csv"
    deployment.write_text("prompt\nhe one\nhe two\n")
    code, _, error = command(
        "calibrate", "--prompts", prompts, "--columns", "prompt=text,reference=answer", "--name", "n", "--lam", 0.3,
        "--alpha", 0.2, "--estimator", "one_per_context", "--draws", 5, "--temperature", 0.7, "--top-p", 0.8,
        "--top-k", 9, "--sentinel", "<mask>", "--seed", 4, "--verification-share", 0.4, "--accept-errors",
        "--source", "rollout", "--by-group", "--mask", "factorized", "--alpha-by-family", "gender=0.05,race=0.15",
        "--mask-mode", "soft", "--mask-hint", "someone", "--whitelist", "a", "--whitelist", "b", "--bin-width", 4,
        "--bin-spacing", "even", "--max-position", 32, "--rollout-steps", 12, "--tolerance", 0.02,
        "--rounds", 3, "--record-chains", "--rho", 1, "--weights", deployment,
        "--mask-families", "all", "--model", "tiny",
    )  # fmt: skip
    assert code == 1
    assert error.splitlines()[-1] == "coft-audit: enough"
    assert "prompt is read from the column “text”" in error
    ((parsed, request),) = asked
    assert dict(parsed.mapping)["reference"] == "answer"
    assert request == CalibrationRequest(
        name="n", model="tiny", lam=0.3, alpha=0.2, estimator="one_per_context", draws=5, temperature=0.7, top_p=0.8,
        top_k=9, sentinel="<mask>", seed=4, verification_share=0.4, accept_errors=True, source="rollout",
        by_group=True, mask_layout="factorized", alpha_by_family=(("gender", 0.05), ("race", 0.15)), mask_mode="soft",
        mask_hint="someone", whitelist=("a", "b"), bin_width=4, bin_spacing="even", max_position=32, max_new_tokens=12,
        tolerance=0.02, max_iterations=3, record_chains=True, rho=1.0, weighting="estimated",
        deployment=("he one", "he two"), masked_families=cc.FAMILIES,
    )  # fmt: skip


def test_options_that_are_left_out_have_the_defaults_of_a_request(command, asked, prompts):
    command("calibrate", "--prompts", prompts, "--mask", "gender", "--weights", "column")
    ((_, request),) = asked
    assert request == CalibrationRequest(name="ward", model="demo", masked_families=("gender",), weighting="column")


def test_options_that_cannot_be_used_end_with_one_sentence(command, prompts):
    for arguments, named in (
        ((), "no prompt set"),
        (("--prompts", prompts, "--resume", "3"), "--prompts"),
        (("--prompts", prompts, "--mask", "colour"), "'colour'"),
        (("--prompts", prompts, "--mask", "gender", "--mask-families", "race"), "one of them"),
        (("--prompts", prompts, "--columns", "prompt"), "name=value"),
        (("--prompts", prompts, "--columns", "prompt=text,prompt=answer"), "prompt twice"),
        (("--prompts", prompts, "--mask", "factorized", "--alpha-by-family", "gender=much"), "no number"),
        (("--prompts", prompts, "--weights", "nowhere.csv"), "nowhere.csv"),
        (("--resume", "404"), "no job"),
    ):
        code, out, error = command("calibrate", *arguments, *MODEL)
        assert (code, out) == (1, ""), arguments
        assert named in error.splitlines()[-1]
        assert "Traceback" not in error


def test_a_calibration_is_made_shown_compared_exported_weighted_and_deleted(command, prompts, tmp_path):
    out = tmp_path / "made.zip"
    made = ("calibrate", "--prompts", prompts, "--columns", "prompt=text", *MODEL, "--by-group")
    code, text, _ = command(*made, "--record-chains", "--rollout-steps", 5, "--out", out)
    assert code == 0
    for part in ("All steps", "smallest alpha is", "Whole texts at alpha 0.1:", "group: The group 'a'"):
        assert part in text
    code, text, _ = command(*made, "--mask", "factorized", "--json")
    second = json.loads(text)["calibration_id"]
    first = second - 1
    assert cc.Calibration.load(out).name == "ward"

    listed = json.loads(command("calibrations", "list", "--json")[1])
    assert [item["calibration_id"] for item in listed][:2] == [second, first]
    assert "one mask a family" in command("calibrations", "list")[1]

    shown = json.loads(command("calibrations", "show", first, "--alpha", 0.2, "--group", "b", "--json")[1])
    assert (shown["alpha"], shown["group"], shown["calibration_id"]) == (0.2, "b", first)
    assert shown["drift"]["status"] == "unknown"
    embedded = command("calibrations", "show", 1, "--alpha", 0.3)[1]
    assert "Whole texts at alpha 0.3: tau" in embedded
    assert "reach the horizon" in embedded
    assert shown["sequence"]["alpha"] == 0.2
    text = command("calibrations", "show", first, "--rho", 2)[1]
    assert "density ratio" in text
    assert "drift: Drift cannot be judged" in text
    text = command("calibrations", "show", second, "--family", "race")[1]
    assert "family gender: alpha 0.05" in text
    assert "state race" in text

    text = command("calibrations", "compare", first, second)[1]
    assert "mask_mode: hard and hard; factorized" in text
    compared = json.loads(command("calibrations", "compare", first, second, "--alpha", 0.3, "--json")[1])
    assert compared["first"]["alpha"] == compared["second"]["alpha"] == 0.3
    assert compared["differences"] == [["mask_mode", "hard", "hard; factorized"]]

    copy = tmp_path / "copy.zip"
    assert command("calibrations", "export", first, "--out", copy)[1].strip() == str(copy)
    assert copy.read_bytes() == out.read_bytes()
    assert "Drift cannot be judged" in command("calibrations", "drift", first)[1]

    in_use = tmp_path / "in_use.csv"
    in_use.write_text("prompt\n" + "".join(f"{w} said it {i}\n" for i in range(20) for w in ("He", "The Black man")))
    code, text, error = command("calibrations", "reweight", first, "--prompts", in_use, "--name", "ward now", "--json")
    assert code == 0, error
    assert json.loads(text)["name"] == "ward now"

    assert command("calibrations", "delete", first)[0] == 0
    code, _, error = command("calibrations", "show", first)
    assert code == 1
    assert "no calibration" in error
    code, _, error = command("calibrations", "delete", "embedded")
    assert code == 1
    assert "cannot be deleted" in error


def test_an_interrupted_calibration_says_how_it_is_resumed_and_goes_on(command, prompts, monkeypatch):
    interrupted, wait, put = Event(), JobService.wait, cc.MemoryLedger.put_many

    def interrupt_first(self, job_id, timeout=None):
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt
        return wait(self, job_id, timeout)

    def keep_at_first_batch(self, phase, results):
        put(self, phase, results)
        assert interrupted.wait(60)

    with monkeypatch.context() as patch:
        patch.setattr(JobService, "wait", interrupt_first)
        patch.setattr(cc.MemoryLedger, "put_many", keep_at_first_batch)
        patch.setattr(JobContext, "check_cancelled", stop_after(interrupted))
        code, out, error = command("calibrate", "--prompts", prompts, "--columns", "prompt=text", *MODEL)
    assert (code, out) == (STOPPED, "")
    assert "python -m app calibrate --resume 1" in error
    code, text, _ = command("calibrate", "--resume", 1, "--json")
    assert code == 0
    assert json.loads(text)["name"] == "ward"
    code, _, error = command("calibrate", "--resume", 1)
    assert code == 1
    assert "job 2" in error


def stop_after(interrupted):
    """What a job does at its checks once the command was interrupted."""

    def check(self):
        if interrupted.is_set():
            raise JobCancelled

    return check
