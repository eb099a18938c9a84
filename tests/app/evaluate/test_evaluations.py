"""Evaluations on a tiny model: what is read, what is kept, what is shared and what is deleted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from sqlalchemy import func, select

from app.audit.service import AuditService
from app.bootstrap import services
from app.evaluate.items import ask_seed
from app.evaluate.methods import methods_from
from app.evaluate.opening import BEGUN, ItemOpener
from app.evaluate.runs import EvaluationMethod, EvaluationRequest
from app.evaluate.sources import HUB, SHIPPED
from app.jobs.service import JobService
from app.settings import Settings
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from coft_core.errors import CoftError, ModelLoadError
from coft_core.suites.base import Choices, Item, Scored, Written
from coft_core.suites.reading import Reader
from db.evaluations import EvaluationsRepository, calibrations, contents, items
from db.types import NotFoundError
from tests.app.evaluate.made_up import Quiz, evaluations_of
from tests.conftest import load_tiny

BASE = AuditSettings(alpha=0.3, top_p=1.0)
METHODS = methods_from(("Vanilla=vanilla", "coft", "certified=coft:calibrated,lam=0.5", "dtcd:calibrated"), BASE)


def request(**changes):
    asked = EvaluationRequest("made up", ("quiz", "prose"), METHODS, "tiny", (0, 1), calibration_share=0.3)
    return replace(asked, **changes)


class Reading:
    """Counts what is read, by suite's first words."""

    def __init__(self):
        self.asks = []

    def __call__(self, *arguments):
        reader = Reader(*arguments)
        listed = self.asks

        class Counting:
            def read(self, asks, policies, seeds):
                listed.append((tuple(asks), len(policies)))
                return reader.read(asks, policies, seeds)

        return Counting()


@pytest.fixture
def reading():
    return Reading()


@pytest.fixture
def evaluations(wired, reading):
    return evaluations_of(wired, reading)


def finished(wired, evaluations, asked):
    number = evaluations.submit(asked)
    job = wired[JobService].wait(evaluations.view(number).job.id)
    assert job.status == "done", job.error
    return number


def all_outcomes(evaluations, number):
    return {suite: evaluations.suite_outcomes(number, suite) for suite in ("quiz", "prose")}


def rows(wired, table):
    with wired.database.reading() as connection:
        return connection.scalar(select(func.count()).select_from(table))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An evaluation that is done, on a store that these tests share and leave as it was but for further audits."""
    url = f"sqlite:///{tmp_path_factory.mktemp('evaluations') / 'store.db'}"
    reading = Reading()
    with services(Settings(database_url=url, pipeline="none"), loader=load_tiny) as wired:
        evaluations = evaluations_of(wired, reading)
        done = finished(wired, evaluations, request())
        yield SimpleNamespace(url=url, wired=wired, evaluations=evaluations, done=done, reading=reading)


def test_every_method_reads_the_same_items_and_none_of_the_calibration_share(whole):
    evaluations, done = whole.evaluations, whole.done
    view = evaluations.view(done)
    for suite, size in (("quiz", 40), ("prose", 12)):
        read = {
            (method.label, seed): [outcome.item for outcome in evaluations.outcomes(done, suite, method.label)
                                   if outcome.seed == seed]
            for method in METHODS for seed in (0, 1)
        }  # fmt: skip
        plan = next(plan for plan in view.plans if plan.suite == suite)
        for seed in (0, 1):
            of_seed = {tuple(ids) for (_, own), ids in read.items() if own == seed}
            assert len(of_seed) == 1
            assert plan.evaluated[seed] == len(next(iter(of_seed))) == size - plan.calibrated_on[seed]
            assert plan.calibrated_on[seed] >= 0.3 * size
        assert read["Vanilla", 0] != read["Vanilla", 1]
    assert (view.done, view.planned) == (view.planned, sum(part.planned for part in view.progress))
    assert not view.resumable


def test_outcomes_hold_answers_marks_and_seeds(whole):
    evaluations, done = whole.evaluations, whole.done
    outcomes = evaluations.outcomes(done, "prose", "certified")
    assert all(isinstance(outcome.written(), Written) for outcome in outcomes)
    assert all(outcome.marks["length"] == (float(len(outcome.written().text)),) for outcome in outcomes)
    texts = {(outcome.item, outcome.seed): outcome.written().text for outcome in outcomes}
    both = [item for item, seed in texts if seed == 0 and (item, 1) in texts]
    assert any(texts[item, 0] != texts[item, 1] for item in both)
    scored = evaluations.outcomes(done, "quiz", "certified")
    assert all(isinstance(outcome.scored(), Scored) and outcome.scored().masked for outcome in scored)
    assert Quiz().figures(scored)[0].n == len(scored)
    with pytest.raises(ServiceError, match=r"'SDD'.* Vanilla"):
        evaluations.outcomes(done, "quiz", "SDD")


def test_thresholds_are_fitted_by_suite_and_seed_and_say_what_they_rest_on(whole):
    found = whole.evaluations.view(whole.done).calibrations
    notes = {(note.suite, note.method, note.seed): note for note in found}
    labels = [method.label for method in METHODS if method.calibrated]
    assert set(notes) == {(suite, label, seed) for suite in ("quiz", "prose") for label in labels for seed in (0, 1)}
    quiz, prose = notes["quiz", "certified", 0], notes["prose", "certified", 0]
    assert (quiz.source, prose.source) == ("reference", "rollout")
    assert quiz.contexts + quiz.checked == 6
    assert quiz.coverage is not None
    assert (quiz.needed, quiz.silent) == (3, "")
    assert any("factual reading" in note for note in notes["prose", labels[1], 1].notes)


def test_what_depends_on_no_seed_is_read_once(whole):
    evaluations, reading, done = whole.evaluations, whole.reading, whole.done
    items = Counter(
        ask.prompt for asks, count in reading.asks for ask in asks for _ in range(count) if "number" in ask.prompt
    )
    evaluated = [{outcome.item for outcome in evaluations.outcomes(done, "quiz", "Vanilla") if outcome.seed == seed}
                 for seed in (0, 1)]  # fmt: skip
    uncertified, certified = 2, 2
    assert sum(items.values()) == sum(
        certified * sum(item in own for own in evaluated) + uncertified for item in set.union(*evaluated)
    )


def test_a_second_run_reads_no_model_has_the_same_outcomes_and_is_deleted_without_those_of_the_first(whole):
    wired, evaluations, done = whole.wired, whole.evaluations, whole.done
    asked, before = len(whole.reading.asks), all_outcomes(evaluations, done)
    kept = [rows(wired, table) for table in (contents, items, calibrations)]
    again = finished(wired, evaluations, request(name="again"))
    assert len(whole.reading.asks) == asked
    assert [rows(wired, table) for table in (contents, items, calibrations)] == [kept[0], 2 * kept[1], 2 * kept[2]]
    assert all_outcomes(evaluations, again) == before
    assert evaluations.view(again).calibrations == evaluations.view(done).calibrations
    evaluations.delete(again)
    with pytest.raises(NotFoundError):
        evaluations.view(again)
    assert [rows(wired, table) for table in (contents, items, calibrations)] == kept
    assert all_outcomes(evaluations, done) == before


def test_thresholds_that_say_nothing_give_one_outcome_that_is_read_once(wired, evaluations, reading):
    # Six units are kept apart: enough for 0.3, and neither for 0.1 nor for 0.05.
    named = ("A=coft:calibrated,alpha=0.1", "B=coft:calibrated,alpha=0.05", "C=coft:calibrated,alpha=0.3", "D=coft")
    asked = request(methods=methods_from(named, BASE), suites=("quiz",), seeds=(0,))
    number = finished(wired, evaluations, asked)
    assert {policies for _, policies in reading.asks} == {3}
    listed, _ = wired[EvaluationsRepository].outcomes(number, "quiz")
    keys = {method: [key for own, _, key in listed if own == method] for method in "ABCD"}
    assert keys["A"] == keys["B"]
    assert not set(keys["A"]) & set(keys["C"])
    assert not set(keys["A"]) & set(keys["D"])
    read = evaluations.suite_outcomes(number, "quiz")
    assert [own.answers for own in read["A"]] == [own.answers for own in read["B"]]


def test_a_limit_takes_whole_units_without_thresholds_nothing_is_kept_apart_and_deleting_leaves_nothing(
    wired, evaluations
):
    asked = request(methods=METHODS[:2], suites=("quiz",), limit=7)
    number = finished(wired, evaluations, asked)
    outcomes = evaluations.outcomes(number, "quiz", "Vanilla")
    assert {Counter(outcome.seed for outcome in outcomes)[seed] for seed in (0, 1)} == {8}
    assert set(Counter(outcome.unit for outcome in outcomes).values()) == {4}
    evaluations.delete(number)
    assert [rows(wired, table) for table in (contents, items, calibrations)] == [0, 0, 0]
    assert evaluations.list() == ()


class Cancelling(Reading):
    """Cancels the job when the third batch is read."""

    def __init__(self, wired):
        super().__init__()
        self.wired = wired

    def __call__(self, *arguments):
        counting = super().__call__(*arguments)
        outer = self

        class Stopping:
            def read(self, asks, policies, seeds):
                answers = counting.read(asks, policies, seeds)
                if len(outer.asks) == 3:
                    running = next(job for job in outer.wired[JobService].list() if job.status == "running")
                    outer.wired[JobService].cancel(running.id)
                return answers

        return Stopping()


def test_cancelling_keeps_whole_batches_and_the_rest_is_resumed(wired, evaluations):
    stopping = evaluations_of(wired, Cancelling(wired))
    number = stopping.submit(request(seeds=(0,)))
    job = wired[JobService].wait(stopping.view(number).job.id)
    view = evaluations.view(number)
    assert (job.status, view.resumable) == ("cancelled", True)
    assert 0 < view.done < view.planned
    with pytest.raises(ServiceError, match="has no suite 'missing'"):
        evaluations.outcomes(number, "missing", "Vanilla")
    assert wired[JobService].wait(evaluations.resume(number)).status == "done"
    assert evaluations.view(number).done == view.planned
    with pytest.raises(ServiceError, match="nothing to resume"):
        evaluations.resume(number)


def test_an_item_opens_as_an_audit_that_writes_what_the_evaluation_wrote(whole):
    wired, evaluations, done = whole.wired, whole.evaluations, whole.done
    outcome = evaluations.outcomes(done, "prose", "certified")[0]
    opened = evaluations.open_item(done, "prose", "certified", outcome.item, outcome.seed)
    steps = list(wired[AuditService].run(opened.session_id))
    view = wired[AuditService].view(opened.session_id)
    assert (view.settings.seed, view.settings.lam) == (ask_seed(outcome.seed, "prose", outcome.item, 0), 0.5)
    written = outcome.written()
    shown = steps[:-1] if view.finished == "end" else steps
    assert load_tiny("").continuation_text([step.token_id for step in shown]) == written.text
    assert tuple(step.index for step in steps if step.fallback) == written.empty
    second = evaluations.open_item(done, "prose", "certified", outcome.item, outcome.seed)
    assert wired[AuditService].view(second.session_id).settings.calibration_id == view.settings.calibration_id


def test_a_choice_opens_as_an_audit_that_writes_the_chosen_text(whole):
    wired, evaluations, done = whole.wired, whole.evaluations, whole.done
    outcome = evaluations.outcomes(done, "quiz", "certified")[3]
    opened = evaluations.open_item(done, "quiz", "certified", outcome.item, outcome.seed, text=1)
    view = wired[AuditService].view(opened.session_id, opened.branch_id)
    assert "".join(step.token for step in view.steps) == " b c"
    assert sum(step.log_p_fused for step in view.steps) == pytest.approx(
        outcome.scored().likelihoods[1].log_p, abs=1e-4
    )
    assert (view.spans[0].category, opened.note) == ("gender", "")
    with pytest.raises(ServiceError, match="2 texts"):
        evaluations.open_item(done, "quiz", "certified", outcome.item, outcome.seed, text=2)
    first = Item("i", "u", (Choices("", ("One two",), ()),))
    opened = wired[ItemOpener].open("T", METHODS[0], first, "quiz", 0, None, 0, "apart")
    view = wired[AuditService].view(opened.session_id, opened.branch_id)
    assert (view.prompt, "".join(step.token for step in view.steps), opened.note) == ("One", " two", BEGUN)
    with pytest.raises(ServiceError, match="no item 'q99'"):
        evaluations.open_item(done, "quiz", "certified", "q99", 0)


def test_what_cannot_be_asked_for_is_refused(whole):
    evaluations, before = whole.evaluations, len(whole.evaluations.list())
    vanilla = EvaluationMethod("V", calibrated=True, settings=replace(BASE, policy="vanilla"))
    for changes, said in (
        ({"name": " "}, "name"), ({"suites": ()}, "one suite"), ({"suites": ("quiz", "quiz")}, "each once"),
        ({"methods": ()}, "one method"), ({"seeds": ()}, "one seed"), ({"limit": 0}, "one item"),
        ({"calibration_share": 0.6}, "0.5"), ({"suites": ("nowhere",)}, "'nowhere'.* quiz, prose, missing"),
        ({"data": "/no/such/folder"}, "/no/such/folder"), ({"methods": (vanilla,)}, "no certificate"),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match=said):
            evaluations.submit(request(**changes))
    assert len(evaluations.list()) == before


def test_a_method_whose_checkpoint_is_missing_fails_when_it_is_asked_for(settings):
    def load(name, **options):
        if name != "tiny":
            raise ModelLoadError(f"There is no model {name}.")
        return load_tiny(name)

    methods = methods_from(("vanilla", "cda:checkpoint=/no/such/model"), BASE)
    with services(settings, loader=load) as wired:
        evaluations = evaluations_of(wired)
        with pytest.raises(ServiceError, match="/no/such/model"):
            evaluations.submit(request(methods=methods))
        estimate = evaluations.estimate(request(methods=methods, suites=("quiz", "missing")))
    assert len(estimate.missing) == 2
    assert [suite.suite for suite in estimate.suites] == ["quiz"]


def test_a_hub_that_cannot_be_reached_is_one_sentence_of_an_estimate_and_refuses_a_run(whole):
    asked = request(methods=METHODS[:1], suites=("quiz", "far", "farther"))
    estimate = whole.evaluations.estimate(asked)
    (said,) = estimate.missing
    assert said.startswith("Far away and Farther away ")
    assert [suite.suite for suite in estimate.suites] == ["quiz"]
    with pytest.raises(CoftError, match="Far away"):
        whole.evaluations.submit(asked)


def test_an_estimate_counts_items_asks_and_tokens(whole):
    evaluations = whole.evaluations
    estimate = evaluations.estimate(request(methods=METHODS[:1]))
    quiz, prose = estimate.suites
    assert (quiz.items, quiz.asks, quiz.written) == (80, 80, 0)
    assert (prose.items, prose.written) == (24, 2 * 4 * (4 + 5 + 6))
    assert quiz.read > 80
    assert estimate.seconds == quiz.seconds + prose.seconds > 0
    assert ["figures of length" in sentence for sentence in estimate.missing] == [True]
    small = evaluations.estimate(request(limit=4))
    assert small.suites[0].too_small == "Quiz (1 of 3)"


def test_suites_say_where_they_come_from_without_asking_the_hub_and_what_is_missing(whole, tmp_path):
    wired = whole.wired
    quiz, _, missing, *hub = whole.evaluations.suites()
    assert (quiz.source, quiz.items, quiz.release, quiz.missing) == (SHIPPED, 40, "comes with the program", "")
    assert [(suite.source, suite.missing) for suite in hub] == [(HUB, "")] * 2
    assert (missing.source, missing.items) == ("", None)
    assert "--data" in missing.missing
    file = tmp_path / "missing" / "m.jsonl"
    in_folder = evaluations_of(wired, folder=str(tmp_path))
    assert "no file m.jsonl" in in_folder.suites()[2].missing
    file.parent.mkdir()
    file.write_text("{}\n")
    found = in_folder.suites()[2]
    assert (found.source, found.items, found.missing) == (str(tmp_path), None, "")
    assert in_folder.suites(read=True)[2].items == 1
    file.write_text("{}\n{}\n")
    assert in_folder.suites(read=True)[2].items == 2
    file.write_text("{}\n{\n")
    assert "m.jsonl, line 2" in in_folder.suites(read=True)[2].missing


def test_a_run_whose_data_has_changed_is_not_resumed_on_other_items(wired, tmp_path):
    file = tmp_path / "m.jsonl"
    file.write_text("{}\n")
    evaluations = evaluations_of(wired, Cancelling(wired), str(tmp_path))
    number = finished(wired, evaluations, request(suites=("missing",), methods=METHODS[:1], seeds=(0,)))
    store = EvaluationsRepository(wired.database)
    record = store.get(number)
    other = store.add("unfinished", record.request, record.plan)
    file.write_text("{}\n{}\n")
    job = wired[JobService].wait(evaluations.resume(other.id))
    assert job.status == "failed"
    assert "“unfinished”" in job.error
