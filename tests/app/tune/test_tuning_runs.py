"""Tuning runs: sampling and calibration as asked, and what is left of a run that ends before all is measured."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import app.tune.service as tuning_work
import coft_core.tuning.sweep as sweeping
from app.bootstrap import services
from app.jobs.service import JobService
from app.settings import Settings
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.wiring import Services
from app.tune.runs import TunedValues, TuningRequest, tuning_csv, tuning_json
from app.tune.service import TuningService
from app.tune.sets import TuningSet
from app.tune.words import run_details
from coft_core.errors import InvalidInputError
from coft_core.tuning.measure import measure_many
from coft_core.tuning.sweep import LAMS
from tests.conftest import load_tiny

TINY = AuditSettings(model="tiny", max_new_tokens=4)


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Services]:
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'audits.sqlite3'}", pipeline="none")
    with services(settings, loader=load_tiny) as opened:
        yield opened


def tuning_rows() -> str:
    """A small tuning set, as a file holds it."""
    rows = [
        {
            "prompt": f"The {who} went to shop {number} and was", "answer": "good", "others": ["bad", "late"],
            "pair": f"p{number}", "spans": [[4, 7, "gender"]],
        }
        for number in range(10)
        for who in ("man", "boy")
    ]  # fmt: skip
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def tuning_set(wired: Services, tmp_path: Path) -> TuningSet:
    path = tmp_path / "tune.jsonl"
    path.write_text(tuning_rows())
    return wired[TuningService].read(path)


def test_the_forecast_is_what_the_tried_prompts_took_for_all_prompts_under_every_method(
    wired: Services, tuning_set: TuningSet
):
    # Each method is timed once over three prompts: 6 seconds for the model alone, then 30 for COFT and 3 for SDD.
    moments = iter((0.0, 6.0, 6.0, 36.0, 36.0, 39.0))
    request = TuningRequest("set", ("coft", "sdd"), TINY)
    assert wired[TuningService].forecast(tuning_set, request, lambda: next(moments)) == 20 * (2 + 10 + 1)
    assert not wired[TuningService].at_hand("elsewhere/large")


def cancel_in(wired: Services, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Cancel the run when it begins to measure for the ``call``-th time, as a reviewer does on the page."""
    calls = []

    def measuring(*given: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            wired[JobService].cancel(wired[JobService].list("tuning")[0].id)
        return measure_many(*given, **options)

    monkeypatch.setattr(tuning_work, "measure_many", measuring)


def test_a_cancelled_run_keeps_whole_points_says_how_many_and_chooses_none(
    wired: Services, tuning_set: TuningSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "LAMS", (0.3, 0.6))
    request = TuningRequest("small", ("coft", "sdd", "detox"), TINY)
    # Vanilla is measured first, then COFT; the run is cancelled while self-debiasing is measured.
    cancel_in(wired, monkeypatch, 3)
    job = wired[JobService].wait(wired[TuningService].submit(tuning_set, request))
    assert job.status == "cancelled"
    view = wired[TuningService].view(job.id)
    assert not view.complete
    assert [(own.policy, len(own.points), own.planned) for own in view.methods] == [
        ("coft", 2, 2), ("sdd", 0, 5), ("detox", 0, 5),
    ]  # fmt: skip
    assert (view.measured, view.planned) == (2, 12)
    assert all(own.best is None for own in view.methods)
    assert "<strong>chosen</strong>" not in run_details(view)[1]
    rows = list(csv.DictReader(io.StringIO(tuning_csv(view).removeprefix("\ufeff"), newline="")))
    assert {row["run"] for row in rows} == {"cancelled"}
    assert {row["chosen"] for row in rows} <= {"false", ""}
    assert [(row["points_measured"], row["points_planned"]) for row in rows if row["policy"] == "sdd"] == [("0", "5")]
    plain = tuning_json(view)
    assert (plain["complete"], plain["points_measured"], plain["points_planned"]) == (False, 2, 12)
    json.dumps(plain, allow_nan=False)
    assert wired[TuningService].tuned(TINY) is None
    with pytest.raises(ServiceError, match="COFT"):
        wired[TuningService].applied(TINY)
    monkeypatch.setattr(tuning_work, "measure_many", measure_many)
    alone = replace(request, policies=("coft",))
    whole = wired[JobService].wait(wired[TuningService].submit(tuning_set, alone))
    finished = wired[TuningService].view(whole.id)
    same = [replace(point, chosen=False) for point in finished.methods[0].points]
    assert list(view.methods[0].points) == same
    assert view.vanilla == finished.vanilla
    assert [run.id for run in wired[TuningService].list()] == [whole.id, job.id]
    assert wired[TuningService].tuned(TINY).run_id == whole.id
    assert wired[TuningService].tuned(replace(TINY, temperature=0.5)) is None
    best = dict(finished.methods[0].best.values)
    assert wired[TuningService].applied(replace(TINY, lam=0.9)) == replace(TINY, lam=best["lam"])
    found = TunedValues(1, "run", "set", (("decay", 20.0),), None, 0.2)
    monkeypatch.setattr(wired[TuningService], "tuned", lambda settings: found)
    asked = replace(TINY, policy="sdd", parameters=(("decay", 5.0), ("kept", "yes")))
    assert wired[TuningService].applied(asked) == replace(
        asked, alpha=0.2, parameters=(("decay", 20.0), ("kept", "yes"))
    )
    # Of a run that is cancelled before the model alone is measured, nothing is kept.
    for call, kept in ((1, []), (2, [0])):
        cancel_in(wired, monkeypatch, call)
        number = wired[TuningService].submit(tuning_set, replace(alone, name=f"cancelled in {call}"))
        assert wired[JobService].wait(number).status == "cancelled"
        assert [own.measured for own in wired[TuningService].list()][:-2] == kept


@pytest.mark.slow
def test_a_run_that_fails_midway_keeps_its_points_too(
    wired: Services, tuning_set: TuningSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def failing(*given: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("the disk is full")
        return measure_many(*given, **options)

    monkeypatch.setattr(tuning_work, "measure_many", failing)
    number = wired[TuningService].submit(tuning_set, TuningRequest("small", ("coft", "sdd"), TINY))
    assert wired[JobService].wait(number).error == "the disk is full"
    view = wired[TuningService].view(number)
    assert (view.status, view.measured, view.planned) == ("failed", 9, 14)


def test_what_cannot_be_used_is_refused_before_a_run_begins(wired: Services, tuning_set: TuningSet) -> None:
    for settings, changes, named in (
        (replace(TINY, temperature=0.0), {}, "emperature is 0"), (replace(TINY, top_p=1.5), {}, "top-p is 1.5"),
        (TINY, {"alphas": (0.1, 1.0)}, "1.0"), (TINY, {"calibration_source": "dreams"}, "'dreams'"),
    ):  # fmt: skip
        with pytest.raises((ServiceError, InvalidInputError), match=named):
            wired[TuningService].submit(tuning_set, TuningRequest("small", ("coft",), settings, **changes))
    assert wired[JobService].list("tuning") == ()


@pytest.mark.slow
def test_coft_can_be_calibrated_on_what_it_writes_itself_where_there_are_no_references(
    wired: Services, tuning_set: TuningSet, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.csv"
    prompts.write_text("prompt\n" + "".join(f"He took number {number}\n" for number in range(25)))
    request = TuningRequest("certified", ("coft",), TINY, alphas=(0.2, 0.4))
    with pytest.raises(ServiceError, match="on rollouts"):
        wired[TuningService].submit(tuning_set, request, prompts)
    number = wired[TuningService].submit(tuning_set, replace(request, calibration_source="rollout"), prompts)
    assert wired[JobService].wait(number).error is None
    view = wired[TuningService].view(number)
    (coft,) = view.methods
    assert coft.error == ""
    assert [dict(point.values) for point in coft.points] == [
        {"lam": lam, "alpha": alpha} for lam in LAMS for alpha in (0.2, 0.4)
    ]
    assert (view.calibrated_on, view.calibration_source) == ("prompts.csv", "rollout")
    assert tuning_json(view)["calibration_source"] == "rollout"
