"""Comparisons over prompt sets: numbers against slow computations, one set of prompts for all, nothing run twice."""

import csv
import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean, median

import pytest
import scipy.stats

from app.audit.service import AuditService
from app.batch.service import BatchService
from app.bootstrap import services
from app.compare.chains import SetCell, SetColumn, SetComparison, SetRequest, SetRow, column_means, mean_of, parted
from app.compare.operations import set_request
from app.compare.service import ComparisonService
from app.compare.set_words import PAGE_ROWS, column_names, means_rows, set_message, set_query
from app.compare.sets import SetComparisonService
from app.jobs.service import JobService
from app.settings import Settings
from app.shared.audits import AuditSettings
from app.shared.errors import ColumnMismatch, ServiceError
from coft_core.decode.cost import Footprint
from db.comparisons import ComparisonsRepository, MeasuredStepRecord
from db.types import NotFoundError
from tests.conftest import load_tiny

SETTINGS = AuditSettings(model="tiny", policy="vanilla", max_new_tokens=5, top_p=1.0, seed=3, controls=0)
COLUMNS = (SETTINGS, replace(SETTINGS, policy="coft", lam=0.9), replace(SETTINGS, policy="sdd"))
PROMPTS = "prompt,group,context\nThe nurse said he,men,1\nThe nurse said she,women,1\nThe black man went,men,2\n"


def people(wired, folder):
    path = folder / "people.csv"
    path.write_text(PROMPTS)
    return wired[BatchService].parse(path)


@pytest.fixture
def prompts(wired, tmp_path):
    return people(wired, tmp_path)


def finish(wired, number):
    for column in wired[SetComparisonService].view(number).columns:
        job = wired[JobService].wait(column.job.id)
        assert job.status == "done", job.error
    return wired[SetComparisonService].view(number)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The services and a finished comparison, for tests that only read it."""
    folder = tmp_path_factory.mktemp("compared")
    settings = Settings(database_url=f"sqlite:///{folder / 'audits.sqlite3'}", pipeline="none")
    with services(settings, loader=load_tiny) as wired:
        number = wired[SetComparisonService].submit(people(wired, folder), SetRequest("people", COLUMNS))
        yield wired, finish(wired, number)


def test_a_comparison_that_ends_between_its_writes_leaves_no_prompts_batches_or_jobs(wired, prompts, monkeypatch):
    def ended(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ComparisonsRepository, "add", ended)
    with pytest.raises(KeyboardInterrupt):
        wired[SetComparisonService].submit(prompts, SetRequest("people", COLUMNS))
    assert wired[SetComparisonService].prompt_sets() == []
    assert wired[BatchService].list() == ()
    assert wired[JobService].list() == ()


def test_every_prompt_is_decoded_under_every_column_from_one_stored_set(compared):
    wired, view = compared
    assert [(row.line, row.prompt, row.group) for row in view.rows] == [
        (2, "The nurse said he", "men"), (3, "The nurse said she", "women"), (4, "The black man went", "men"),
    ]  # fmt: skip
    assert [own.settings.policy for own in view.columns] == ["vanilla", "coft", "sdd"]
    assert [own.finished for own in view.columns] == [3, 3, 3]
    assert not view.running
    assert not view.resumable
    assert len(wired[SetComparisonService].prompt_sets()) == 1
    assert len({wired[BatchService]._batches.get(own.batch_id).prompt_set_id for own in view.columns}) == 1
    for row in view.rows:
        seeds = {wired[AuditService].view(cell.session_id).settings.seed for cell in row.cells}
        assert len(seeds) == 1, "columns differ by their policy, not by chance"


def test_the_numbers_of_a_cell_are_those_of_its_session(compared):
    wired, view = compared
    for row in view.rows:
        shown = [wired[AuditService].view(cell.session_id) for cell in row.cells]
        tokens = [[step.token_id for step in own.steps] for own in shown]
        for place, (cell, own) in enumerate(zip(row.cells, shown, strict=True)):
            assert cell.steps == len(own.steps) == 5
            assert cell.mean_tv_factual == pytest.approx(fmean(s.diagnostics.tv_fused_factual for s in own.steps))
            assert cell.mean_kl_factual == pytest.approx(fmean(s.diagnostics.kl_fused_factual for s in own.steps))
            assert cell.mean_log_ratio == pytest.approx(fmean(abs(s.diagnostics.log_ratio) for s in own.steps))
            apart = next((at for at in range(5) if tokens[place][at] != tokens[0][at]), None)
            assert (cell.parted_at, cell.parted) == ((apart, apart is not None) if place else (None, None))
            taken = [item.seconds for item in wired[ComparisonService]._measured.branch_steps(own.branch_id)]
            assert cell.seconds_per_token == median(taken[1:]) > 0, "the first step reads the prompt"
            assert cell.peak_bytes is None, "only CUDA counts it"
    assert all(row.cells[0].mean_tv_factual == 0 for row in view.rows), "vanilla is as far as nothing from itself"
    assert all(row.cells[1].mean_tv_factual > 0 for row in view.rows)


def test_means_count_a_context_once_and_have_its_t_interval(compared):
    _, view = compared
    means = {item.measure: item for item in view.columns[1].means}
    by_context = [fmean(r.cells[1].mean_tv_factual for r in view.rows if r.context == c) for c in "12"]
    found = means["mean_tv_factual"]
    low, high = scipy.stats.t.interval(0.95, 1, loc=fmean(by_context), scale=scipy.stats.sem(by_context))
    assert (found.mean, found.contexts, found.left_out) == (pytest.approx(fmean(by_context)), 2, 0)
    assert (found.low, found.high) == (pytest.approx(max(low, 0.0)), pytest.approx(min(high, 1.0)))
    assert means["certified_share"].mean is None
    assert means["certified_share"].left_out == 3


def test_rows_are_sorted_by_a_columns_number(compared):
    wired, view = compared
    for descending in (False, True):
        rows = wired[SetComparisonService].view(view.id, "mean_kl_factual", 1, descending).rows
        values = [row.cells[1].mean_kl_factual for row in rows]
        assert values == sorted(values, reverse=descending)
    assert [row.group for row in wired[SetComparisonService].view(view.id, "group").rows] == ["men", "men", "women"]


def test_the_tables_hold_every_prompt_and_column_and_every_mean(compared, tmp_path):
    wired, view = compared
    rows, summary = wired[SetComparisonService].write_csv(view.id, tmp_path)
    found = list(csv.DictReader(rows.open(newline="", encoding="utf-8")))
    assert len(found) == 9
    second = next(row for row in found if (row["line"], row["column"]) == ("3", "2"))
    cell = view.rows[1].cells[1]
    assert float(second["mean_tv_factual"]) == cell.mean_tv_factual
    assert second["parted_at"] == ("same" if cell.parted_at is None else str(cell.parted_at + 1))
    assert second["lam"] == "0.9"
    assert next(row for row in found if row["column"] == "1")["lam"] == ""
    means = list(csv.DictReader(summary.open(newline="", encoding="utf-8")))
    own = next(row for row in means if (row["column"], row["measure"]) == ("2", "mean_tv_factual"))
    assert float(own["mean"]) == next(m.mean for m in view.columns[1].means if m.measure == "mean_tv_factual")
    assert {row["measure"] for row in means} >= {"model_bytes", "further_bytes", "key_value_bytes"}


def test_columns_that_cannot_be_compared_are_refused_and_nothing_is_stored(wired, prompts, calibrated):
    for columns, named in (
        ((SETTINGS,), "2 to 8"),
        ((SETTINGS, SETTINGS), "same policy"),
        ((SETTINGS, replace(SETTINGS, policy="guess")), "guess"),
    ):
        with pytest.raises(ServiceError, match=named):
            wired[SetComparisonService].submit(prompts, SetRequest("people", columns))
    misfit = replace(SETTINGS, policy="coft", lam=0.2, calibration_id=calibrated)
    with pytest.raises(ColumnMismatch) as refused:
        wired[SetComparisonService].submit(prompts, SetRequest("people", (SETTINGS, misfit)))
    assert refused.value.column == 1
    assert wired[BatchService].list() == ()
    assert wired[SetComparisonService].list() == ()


def test_a_cancelled_comparison_goes_on_where_it_was_left_and_leaves_its_sessions_when_it_is_deleted(wired, prompts):
    comparisons = wired[SetComparisonService]
    columns = tuple(replace(own, max_new_tokens=10) for own in COLUMNS)
    number = comparisons.submit(prompts, SetRequest("people", columns))
    comparisons.cancel(number)
    for column in comparisons.view(number).columns:
        wired[JobService].wait(column.job.id)
    before = comparisons.view(number)
    assert before.resumable
    kept = {cell.session_id for row in before.rows for cell in row.cells} - {None}
    comparisons.resume(number)
    ids = {cell.session_id for row in finish(wired, number).rows for cell in row.cells}
    assert kept <= ids
    with pytest.raises(ServiceError, match="nothing to resume"):
        comparisons.resume(number)
    comparisons.delete(number)
    assert comparisons.list() == ()
    assert wired[BatchService].list() == ()
    assert len([wired[AuditService].view(own) for own in ids]) == 9
    with pytest.raises(NotFoundError):
        comparisons.view(number)


def test_a_stored_prompt_set_can_be_used_again_as_it_was(compared, tmp_path):
    wired, _ = compared
    prompts = people(wired, tmp_path)
    (stored,) = wired[SetComparisonService].prompt_sets()
    again = wired[BatchService].parse(wired[SetComparisonService].write_prompt_set(stored.id, tmp_path / "again"))
    assert again.errors == ()
    assert [example for _, example in again.rows] == [example for _, example in prompts.rows]


def step(index, token, branch=1, **numbers):
    given = {"kl_fused_factual": None, "tv_fused_factual": None, "seconds": None, "peak_bytes": None} | numbers
    return MeasuredStepRecord(
        branch_id=branch, index=index, token_id=token, token=str(token), certified=False, fallback=False,
        log_ratio=0.0, **given,
    )  # fmt: skip


def test_an_unfinished_chain_parts_only_at_a_token_that_differs():
    done, going = SetCell("finished"), SetCell("unfinished")
    long, short = [step(0, 5), step(1, 6)], [step(0, 5)]
    other = [step(0, 7)]
    assert parted((done, going), (long, short), False)[1].parted is None
    assert parted((done, done), (long, short), False)[1].parted_at == 1
    assert parted((done, going), (long, other), False)[1].parted_at == 0
    # A chain with a step of an earlier store has no divergence from vanilla.
    assert [mean_of(given) for given in ([0.5, None], [], [0.5, math.inf])] == [None, None, math.inf]


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("question,group\nThe nurse said he,men\nThe nurse said she,women\n")
    return path


def compare(questions, *more):
    shared = ("--columns", "prompt=question", "--model", "tiny", "--steps", 4, "--calibration", "none")
    return ("compare-set", "run", "--prompts", questions, *shared, *more)


def test_a_set_is_run_shown_again_and_deleted(questions, tmp_path, command):
    out = tmp_path / "tables"
    code, text, _ = command(
        *compare(questions, "--policy", "vanilla,coft,sdd", "--set", "sdd.decay=20", "--out", out, "--json")
    )
    assert code == 0
    found = json.loads(text)
    assert [own["settings"]["policy"] for own in found["columns"]] == ["vanilla", "coft", "sdd"]
    assert found["columns"][2]["settings"]["parameters"] == {"decay": 20.0}
    assert found["columns"][0]["means"]["mean_tv_factual"]["mean"] == 0
    assert found["columns"][1]["means"]["mean_tv_factual"]["mean"] > 0
    tables = sorted(out.iterdir())
    assert [len(list(csv.DictReader(path.open(newline="", encoding="utf-8")))) for path in tables][1] == 6
    _, text, _ = command("compare-set", "show", found["comparison_id"], "--json")
    assert json.loads(text) == found
    _, text, _ = command("compare-set", "show", found["comparison_id"])
    assert all(said in text for said in ("COFT: batch 2, 2 finished", "From vanilla, total variation", "n = 2"))
    _, text, _ = command("compare-set", "list")
    assert "people  2 prompts  vanilla, coft, sdd" in text
    _, text, _ = command("compare-set", "delete", found["comparison_id"])
    assert "deleted; its sessions stay" in text
    assert json.loads(command("compare-set", "list", "--json")[1]) == []


def test_a_set_that_cannot_be_compared_is_refused_in_one_sentence(questions, command):
    for policies, sentence in (("vanilla", "choose 2 to 8"), ("vanilla,guess", "There is no policy 'guess'")):
        code, _, error = command(*compare(questions, "--policy", policies))
        assert code == 1
        assert sentence in error


def test_a_request_from_json_has_the_settings_of_all_columns_and_those_of_each():
    given = {"name": "n", "accept_errors": True, "columns": {"prompt": "q"}, "max_new_tokens": 4}
    request, columns = set_request(given | {"compare": [{"policy": "vanilla"}, {"policy": "coft", "lam": 0.8}]})
    shared = AuditSettings(max_new_tokens=4)
    assert request == SetRequest("n", (replace(shared, policy="vanilla"), replace(shared, lam=0.8)), True)
    assert columns == {"prompt": "q"}
    for wrong in ({}, {"compare": {}}, {"compare": ["coft"]}):
        with pytest.raises(ServiceError, match="must list the columns"):
            set_request(wrong)


PAIR = (AuditSettings(policy="vanilla"), AuditSettings(policy="coft", calibration_id=1))
QUERY = {"set": "4", "order": "line", "column": "0", "page": "1", "descending": False}


def shown_row(line, prompt="Who <got> it?", state="finished", sessions=(1, 2)):
    cells = (
        SetCell(state, sessions[0], mean_tv_factual=0.0),
        SetCell(state, sessions[1], parted_at=2, parted=True, mean_tv_factual=0.1 * line, error="Too long."),
    )
    return SetRow(line, prompt, "men & women", None, cells)


def shown_set(rows, columns=PAIR):
    made = tuple(
        SetColumn(
            7 + place, own, None, len(rows), 0, column_means(rows, place), Footprint((4,), (10,), 2000, 0), None, False
        )
        for place, own in enumerate(columns)
    )
    return SetComparison(4, "Hiring", datetime(2026, 3, 4, tzinfo=UTC), "p.csv", made, tuple(rows), False, False, ())


def test_rows_open_their_sessions_come_in_pages_and_means_have_their_interval_or_a_dash():
    shown = set_message(shown_set([shown_row(2)]), set_query(QUERY))["rows"]
    assert all(text in shown for text in ('data-sessions="1,2"', "Who &lt;got&gt; it?", "men &amp; women"))
    assert '<td class="n first">3</td>' in shown, "steps count from 1"
    many = shown_set([shown_row(line) for line in range(2, PAGE_ROWS + 12)])
    message = set_message(many, set_query({**QUERY, "page": "9"}))
    assert (message["page"], message["pages"], message["where"]) == (2, 2, "51 to 60 of 60")
    rows = {title: row for title, *row in means_rows(shown_set([shown_row(1), shown_row(2), shown_row(3)]).columns)}
    assert rows["From vanilla, total variation"] == ["0.000 (n = 3)", "0.200 (0.000 to 0.448, n = 3)"]
    assert rows["Weights of the model"] == ["2 kB", "2 kB"]
    assert not {"Weights of further models", "Certified share"} & set(rows), "nothing is known of them"
    twice = (PAIR[1], replace(PAIR[1], lam=0.9))
    assert column_names(shown_set([shown_row(2)], twice).columns) == ["COFT (λ 0.60, α 0.10)", "COFT (λ 0.90, α 0.10)"]
    for change, sentence in (({"order": "id"}, "no order 'id'"), ({"page": "x"}, "page cannot")):
        with pytest.raises(ServiceError, match=sentence):
            set_query({**QUERY, **change})
