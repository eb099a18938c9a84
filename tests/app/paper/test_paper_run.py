"""The paper's experiments run one after the other; killed and begun again they end with the same files."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import contextmanager

import pytest

from app.bootstrap import services
from app.evaluate.experiments.figures import Experiment
from app.evaluate.experiments.grid import Paper, Value
from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.experiments.service import ExperimentService
from app.evaluate.experiments.tables import Column, FiguresTable
from app.evaluate.prepared import MethodPreparer
from app.evaluate.sources import SuiteSources
from app.hosting.model_host import ModelHost
from app.jobs.service import JobService
from app.paper import items
from app.paper.run import Asked
from app.paper.service import PaperService
from app.settings import Settings
from app.shared.errors import ServiceError
from coft_core.experiments.averages import Part
from coft_core.suites.reading import Reader
from db.evaluations import EvaluationsRepository
from tests.app.children import child
from tests.app.evaluate.made_up import MADE_UP, evaluations_of
from tests.conftest import load_tiny

PAPERS = (
    Paper("LLaMA-2-13B", "Table 9", {"Vanilla": (Value(70.0),)}),
    Paper("averaged", "Table 9", {"Vanilla": (Value(60.0),)}),
)


def made(name, *methods, suites=("quiz",)):
    table = FiguresTable("Shares", PAPERS, (Column("Share", Part("quiz")),))
    return Experiment(name, name.title(), "Table 9", "Shares.", ("Small.",), (table,), suites, methods, seeds=(0, 1))


MADE = {
    "first": made("first", "Vanilla=vanilla"),
    "second": made("second", "Vanilla=vanilla", "COFT=coft:lam=0.4"),
    "third": made("third", "Vanilla=vanilla", suites=("missing",)),
}
ITEMS = (
    items.Item("Table 1", "First", ("first",)),
    items.Item("Table 2", "Both", ("first", "second")),
    items.Item("Table 3", "Third", ("third",)),
    items.Item("Figure 1", "Drawn", reason="It is drawn."),
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(items, "paper_items", lambda: ITEMS)
    monkeypatch.setattr("app.paper.outputs.paper_items", lambda: ITEMS)
    for name, own in MADE.items():
        monkeypatch.setitem(EXPERIMENTS, name, own)


@contextmanager
def opened(path, reader=Reader):
    """The service on suites that are made up, and what waits for its evaluations."""
    settings = Settings(database_url=f"sqlite:///{path}", pipeline="none")
    with services(settings, loader=load_tiny) as wired:
        evaluations, sources = evaluations_of(wired, reader), SuiteSources("", MADE_UP)
        store = wired[EvaluationsRepository]
        experiments = ExperimentService(evaluations, store, wired[MethodPreparer], sources)
        yield PaperService(evaluations, experiments, wired[ModelHost]), wired[JobService]


def run(path, out, models=("one", "two"), asked=None, only=(), stored=(), reader=Reader):
    """Run the paper to its end."""
    with opened(path, reader) as (paper, jobs):
        told = []
        begun = paper.begin(out, asked or Asked(limit=8), models, only, stored)
        parts = begun.run(lambda view: jobs.wait(view.job.id), told.append)
        return paper.made(begun, parts, told.append), told


class Telling(Reader):
    def read(self, *arguments):
        print("reading", flush=True)
        sys.stdin.readline()
        return super().read(*arguments)


class Failing(Reader):
    def read(self, *arguments):
        raise ServiceError("The disk is full.")


def ended(jobs):
    """Waits for an evaluation, and refuses one that failed, as the command does."""

    def wait(view):
        done = jobs.wait(view.job.id)
        if done.status != "done":
            raise ServiceError(done.error)

    return wait


def files(out):
    return {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_killed_again_and_again_it_ends_with_the_same_files_as_without(tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "killed"
    run(tmp_path / "whole.db", whole)
    for batches in (1, 1, 2):
        with child(lambda: run(tmp_path / "killed.db", out, reader=Telling)) as other:
            for batch in range(batches):
                if batch:
                    other.stdin.write("\n")
                assert other.stdout.readline() == "reading\n"
        assert set(files(out)) == {(out / "paper.json").relative_to(out)}
    run(tmp_path / "killed.db", out)
    assert files(out) == files(whole)
    before = files(out)
    made_again, told = run(tmp_path / "killed.db", out, reader=None)
    assert files(out) == before
    assert [line for line in told if "skipped" in line] == [f"  skipped: {own.reason}" for own in made_again.skipped]


def test_tables_of_several_models_and_of_other_days_are_laid_over_each_other(tmp_path):
    store = tmp_path / "store.db"
    for model in ("one", "two"):
        run(store, tmp_path / model, (model,), only=("first",))
    runs = (
        json.loads((tmp_path / "one" / "paper.json").read_text())["runs"]
        | json.loads((tmp_path / "two" / "paper.json").read_text())["runs"]
    )
    numbers = [runs[model]["first"] for model in ("one", "two")]
    together, _ = run(store, tmp_path / "both", (), only=("first",), stored=numbers, reader=None)
    assert [section.model for section in together.of("first")] == ["one", "two", "mean over 2 models"]
    own, _, mean = [section.grids[0] for section in together.of("first")]
    ((value,),) = [values for head, values in mean.rows if not head.source]
    ((first,),) = [values for head, values in own.rows if not head.source]
    # Both names are of the same tiny model.
    assert (value.value, value.deviation, value.n, value.what) == (first.value, 0.0, 2, "models")
    assert [(head.source, values[0].value) for head, values in mean.rows if head.source] == [("paper, averaged", 60.0)]
    rows = list(csv.DictReader((tmp_path / "both" / "tables" / "first.mean-over-2-models.csv").open()))
    assert [row["source"] for row in rows] == ["", "paper, averaged"]
    page = (tmp_path / "both" / "paper.html").read_text()
    assert 'id="table-1"' in page
    assert 'id="table-3"' not in page
    with opened(store, Failing) as (paper, jobs):
        paper.begin(tmp_path / "left", Asked(limit=9), ("three",), ("second",), ()).run(ended(jobs), lambda line: None)
    left = json.loads((tmp_path / "left" / "paper.json").read_text())["runs"]["three"]["second"]
    run(store, tmp_path / "unfinished", (), only=("second",), stored=[left], reader=None)
    assert "is not finished: " in (tmp_path / "unfinished" / "paper.html").read_text()
    with pytest.raises(ServiceError, match="both of first on one"):
        run(store, tmp_path / "twice", ("one",), stored=[numbers[0], _another(store, tmp_path)])


def _another(store, tmp_path):
    run(store, tmp_path / "again", ("one",), only=("first",))
    return json.loads((tmp_path / "again" / "paper.json").read_text())["runs"]["one"]["first"]


def test_what_is_skipped_is_said_and_what_was_begun_otherwise_is_refused(tmp_path):
    out, store = tmp_path / "out", tmp_path / "store.db"
    found, told = run(store, out, ("one",))
    assert [part.experiment for part in found.skipped] == ["third"]
    page = (out / "paper.html").read_text()
    for said in (
        "one: No suite of this experiment can be read.",
        "It is drawn.",
        'with <a href="#table-1">Table 1</a>',
    ):
        assert said in page
    assert told[0] == "1 of 3: first, one"
    with pytest.raises(ServiceError, match="another limit"):
        run(store, out, ("one",), Asked(limit=9))
    with pytest.raises(ServiceError, match="no part 'fourth'"):
        run(store, out, ("one",), only=("fourth",))
    with pytest.raises(ServiceError, match=r"'gedi\.x'"):
        run(store, tmp_path / "other", ("one",), Asked(given=(("gedi.x", "1"),)))
    with pytest.raises(ServiceError, match="no evaluation 1;"):
        run(tmp_path / "empty.db", out, ("one",))
    (out / "paper.json").write_text("{")
    with pytest.raises(ServiceError, match="cannot be read"):
        run(store, out, ("one",))


def test_a_mixture_of_experts_is_timed_on_those_that_are_asked_for_or_on_one_made_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(items, "paper_items", lambda: (*ITEMS, items.Item("Table 4", "Experts", ("moe",))))
    with opened(tmp_path / "store.db", None) as (paper, _):

        def asked(*models):
            parts = paper.begin(tmp_path / "out", Asked(), models, ("first", "moe"), ()).parts()
            return [(part.experiment, part.model) for part in parts]

        assert asked("one") == [("first", "one"), ("moe", "demo-moe")]
        assert asked("one", "Mixtral-8x7B") == [("first", "one"), ("first", "Mixtral-8x7B"), ("moe", "Mixtral-8x7B")]


def test_a_failed_part_is_skipped_with_its_reason_and_tried_again(tmp_path):
    out, store = tmp_path / "out", tmp_path / "store.db"
    with opened(store, Failing) as (paper, jobs):
        parts = paper.begin(out, Asked(limit=8), ("one",), ("first",), ()).run(ended(jobs), lambda line: None)
    assert [part.reason for part in parts] == ["The disk is full."]
    found, _ = run(store, out, ("one",), only=("first",))
    assert found.skipped == ()


def test_a_plan_counts_what_earlier_parts_read_once_and_what_is_done_as_nothing(tmp_path):
    out, store = tmp_path / "out", tmp_path / "store.db"
    with opened(store) as (paper, _):
        planned = list(paper.begin(out, Asked(limit=8), ("one",), (), ()).planned())
        again = list(paper.begin(out, Asked(limit=8), ("one",), (), ()).planned())
    assert [part.experiment for part in planned] == ["first", "second", "third"]
    assert all(part.seconds for part in planned[:2])
    assert planned[2].reason.startswith("No suite")
    # It is remembered, so that the models are not tried again.
    assert [part.seconds for part in again] == [part.seconds for part in planned]
    run(store, out, ("one",))
    with opened(store, None) as (paper, _):
        left = list(paper.begin(out, Asked(limit=8), ("one",), (), ()).planned())
    assert [part.seconds for part in left[:2]] == [0, 0]
    EXPERIMENTS["first"], kept = MADE["second"], EXPERIMENTS["first"]
    try:
        with opened(tmp_path / "other.db") as (paper, _):
            first, second, _ = paper.begin(tmp_path / "other", Asked(limit=8), ("one",), (), ()).planned()
    finally:
        EXPERIMENTS["first"] = kept
    assert first.seconds
    assert second.seconds == 0


def test_a_plan_names_each_suite_whose_thresholds_will_say_nothing_once_and_a_larger_share_helps(tmp_path, monkeypatch):
    calibrated = made("first", "COFT=coft:calibrated,alpha=0.2")
    monkeypatch.setitem(EXPERIMENTS, "first", calibrated)
    monkeypatch.setitem(EXPERIMENTS, "second", made("second", "Other=coft:calibrated,alpha=0.2,mask=gender"))
    with opened(tmp_path / "store.db") as (paper, _):

        def notes(share, out):
            asked = Asked(limit=20, calibration_share=share)
            planned = paper.begin(tmp_path / out, asked, ("one",), ("first", "second"), ()).planned()
            return [part.notes for part in planned]

        few, enough = notes(0.0, "few"), notes(0.4, "enough")
    assert ["Quiz (2 of 4)" in " ".join(said) for said in few] == [True, False]
    assert enough == [(), ()]
