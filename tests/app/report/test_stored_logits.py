"""Logits in a bundle: every number is computed again from them, and a forgery that fits itself is found."""

import json

import pytest

from app.bootstrap import services
from app.report.bundle import LOGITS_FILE as FILE
from app.report.bundle import REPORT, logits_from, pack
from app.report.service import ReportService
from app.settings import Settings
from app.shared.errors import ServiceError
from coft_core.decode.plan import plan
from tests.app.report.conftest import audit, calibrate, check_named, failures, files_of, with_file
from tests.app.report.forging import forged
from tests.conftest import load_tiny

NAME = "Steps from stored logits"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Bundles of audits that kept their logits."""
    folder = tmp_path_factory.mktemp("kept")
    settings = Settings(database_url=f"sqlite:///{folder / 'audits.sqlite3'}", pipeline="none")
    with pytest.MonkeyPatch.context() as patch, services(settings, loader=load_tiny) as wired:
        joint, factorized = (calibrate(wired, folder, mask_layout=layout) for layout in ("joint", "factorized"))

        patch.setattr(
            "app.shared.planning.plan", lambda *given, **named: plan(*given, **{**named, "keep_logits": True})
        )

        def bundle(**changes):
            return wired[ReportService].bundle(audit(wired, "kept", max_new_tokens=5, **changes))

        return {
            "joint": bundle(calibration_id=joint),
            "greedy": bundle(calibration_id=joint, greedy=True, alpha=0.6),
            "factorized": bundle(calibration_id=factorized, mask_layout="factorized", alpha=0.9),
            "vanilla": bundle(policy="vanilla"),
        }


def test_all_numbers_follow_from_the_stored_logits(kept, verify):
    for kind in ("joint", "greedy", "factorized", "vanilla"):
        found = verify(kept[kind])
        assert failures(found) == {}
        steps = sum(len(branch["steps"]) for branch in json.loads(files_of(kept[kind])[REPORT])["branches"])
        assert check_named(found, NAME).detail.startswith(f"{steps} steps from their logits, 0 without")
        assert "entropies" not in " ".join(item.reason for item in found.beyond)


def test_numbers_that_candidates_leave_open_and_another_seed_are_caught(kept, tmp_path, verify):
    names = ("entropy_fused", "sensitivity", "tv_on_set", "kl_fused_masked", "kl_fused_factual", "tv_fused_factual")

    def change(report):
        for name in names:
            report["branches"][0]["steps"][3][name] += 0.01

    found = failures(verify(forged(kept["joint"], change, tmp_path)))[NAME]
    for name in names:
        assert any(problem.startswith(f"Branch 0, step 4: {name} is stated") for problem in found)

    def change(report):
        report["session"]["seed"] = report["session"]["policy_settings"]["settings"]["seed"] = 999

    found = failures(verify(forged(kept["joint"], change, tmp_path)))
    assert set(found) == {NAME}
    assert any("the policy's token" in problem for problem in found[NAME])


def test_logits_that_are_missing_damaged_or_too_many_are_said(kept, verify):
    bundle = kept["joint"]
    files = files_of(files_of(bundle)[FILE])
    some = dict(list(files.items())[1:])
    assert "1 without" in check_named(verify(with_file(bundle, FILE, pack(some))), NAME).detail
    more = pack({**files, "branch-99-step-1.bin": next(iter(files.values()))})
    assert "that the report does not have" in failures(verify(with_file(bundle, FILE, more)))[NAME][0]
    for broken in (b"no archive", pack({"notes.txt": b"x"}), pack({"branch-1-step-1.bin": b"\x07rubbish"})):
        assert failures(verify(with_file(bundle, FILE, broken)))[NAME][0].startswith(f"{FILE} ")
    with pytest.raises(ServiceError, match="too large"):
        logits_from(pack({"branch-1-step-1.bin": bytes(3 * 2**20)}))
