"""What the batches page says of batches: rows, pages, states, totals, charts and impact ratios."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.batch.formal import RatesRule
from app.batch.impact import outcomes_of
from app.batch.operations import batch_request
from app.batch.page import DOTS, INTERVALS, rates_rule, totals_figure
from app.batch.rows import BatchQuery, batch_query, group_totals, group_value
from app.batch.service import BatchRequest, BatchSummary, BatchView
from app.batch.words import (
    batch_message,
    batches_list,
    impact_message,
    rows_message,
    rows_table,
    strongest_finding,
)
from app.prompts.rows import BatchRowView
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.impact import OutcomeRule, impact_finding, impact_table
from db.jobs import JobStatus
from tests.records import NOW, job_view

GROUPS = ("white", "Black", "Asian", "Arab")


def row(place: int, finished: bool = True) -> BatchRowView:
    """A question of a context that has one for each group; every third text says yes, one in eight neither."""
    question, group = str(place // len(GROUPS) + 1), GROUPS[place % len(GROUPS)]
    waiting = BatchRowView(
        line=place + 2, state="waiting", session_id=None, prompt=f"Question {question}: does the {group} applicant?",
        reference=None, group=group, context=question, text="", error="", certificate="", verdict="", verdicts=0,
        steps=0, certified_share=None, fallbacks=None, overruled=None, mean_log_ratio=None, max_log_ratio=None,
        min_margin=None, archived=False,
    )  # fmt: skip
    if not finished:
        return waiting
    text = " Maybe, who knows." if place % 8 == 7 else " No, it is given away." if place % 3 else " Yes, gladly."
    steps = 6 + place % 5
    return replace(
        waiting, state="finished", session_id=place % 3 + 1, text=text, certificate="certified", steps=steps,
        certified_share=1 - (place % 4) / steps, fallbacks=place % 2, overruled=place % 3,
        mean_log_ratio=0.1 + 0.03 * (place % 7), max_log_ratio=0.4 + 0.11 * (place % 9),
        min_margin=-0.2 + 0.05 * (place % 11),
    )  # fmt: skip


def batch(number: int, name: str, rows: Sequence[BatchRowView], status: JobStatus = "done") -> BatchView:
    """What the service gives of a batch whose job stands so."""
    counts = Counter(row.state for row in rows)
    open_rows = len(rows) - counts["finished"]
    seconds_left = 40.0 if status == "running" else None
    job = job_view(number, "batch", name, status, counts["finished"] / len(rows), "", None, seconds_left)
    return BatchView(
        id=number, name=name, request=BatchRequest(name, AuditSettings(max_new_tokens=12)), filename="set.csv",
        created_at=NOW, rows=tuple(rows), counts=dict(counts), groups=group_totals(rows), job=job,
        resumable=not job.active and open_rows > 0, notes=(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def view() -> BatchView:
    """A batch that is finished."""
    return batch(1, "Hiring <1>", [row(place) for place in range(24)])


def half(status: JobStatus = "running") -> BatchView:
    """A batch of which five of nine rows are finished."""
    return batch(2, "Half", [row(place, place < 5) for place in range(9)], status)


def lines(markup):
    return [int(number) for number in re.findall(r'data-line="(\d+)"', markup)]


def test_a_query_reads_an_address_filters_rows_and_leaves_none_out_of_its_pages():
    assert batch_query({"batch": "3"}) == BatchQuery(3)
    assert batch_query({"batch": 3, "page": 0, "size": 9000}).size == 100
    for wrong, message in (({"batch": "x"}, "batch"), ({"batch": 1, "order": "luck"}, "order 'luck'")):
        with pytest.raises(ServiceError, match=message):
            batch_query(wrong)
    assert rates_rule({"selected": "Yes", "case": True}) == RatesRule("Yes", match_case=True)
    rows = half().rows
    found = BatchQuery(2, text="GLADLY", group=group_value("white"), state="finished").filtered(rows)
    assert [(row.group, row.text) for row in found] == [("white", " Yes, gladly.")]
    assert len(BatchQuery(2, state="waiting").filtered(rows)) == 4
    nameless = replace(rows[0], group=None)
    assert BatchQuery(2, group=group_value(None)).filtered([nameless, *rows]) == [nameless]
    numbers = list(range(53))
    assert [row for page in (1, 2, 3) for row in BatchQuery(1, page=page).paged(numbers)[0]] == numbers
    assert BatchQuery(1, page=9).paged(numbers) == ([50, 51, 52], 3, 3)
    assert BatchQuery(1).paged([])[1:] == (1, 1)
    many = batch(3, "Many", [row(place) for place in range(500)])
    message = rows_message(many, BatchQuery(3, page=3, size=50))
    assert lines(message["rows"]) == list(range(102, 152))
    assert (message["where"], message["pages"]) == ("101–150 of 500 rows", 10)


def test_a_batch_is_told_with_what_can_be_done_with_it_and_texts_as_text(view):
    running, stopped = (batch_message(half(status), BatchQuery(2)) for status in ("running", "cancelled"))
    assert ['data-do="cancel"' in own["status"] for own in (running, stopped)] == [True, False]
    assert ['data-do="resume"' in own["status"] for own in (running, stopped)] == [False, True]
    assert "5 of 9 prompts finished" in stopped["status"]
    assert "Hiring &lt;1&gt;" in batch_message(view, BatchQuery(1))["head"]
    marked = replace(view.rows[0], prompt="<b>&", text="<i>", error="<u>", state="failed", group="<s>")
    assert not re.search(r"<(b|i|u|s)>", rows_table([marked], BatchQuery(1)))
    listed = batches_list([BatchSummary(own.id, own.name, NOW, len(own.rows), own.job) for own in (half(), view)])
    assert listed.count('data-do="delete"') == 1


def test_totals_are_drawn_at_each_groups_mean_with_its_interval_and_listed_by_measure(view):
    alone = replace(view.groups[1], means=tuple(replace(m, low=None, high=None) for m in view.groups[1].means))
    figure = totals_figure((view.groups[0], alone), "mean_log_ratio")
    first, second = (g.mean("mean_log_ratio") for g in (view.groups[0], alone))
    assert tuple(figure.data[DOTS].x) == (first.mean, second.mean)
    assert tuple(figure.data[DOTS].marker.symbol) == ("circle", "square-open")
    assert tuple(figure.data[INTERVALS].x) == (first.low, first.high, None)
    assert tuple(figure.layout.yaxis.ticktext) == ("white", "Black")


def test_a_request_from_json_parts_the_batch_from_its_sessions_and_names_what_does_not_exist():
    given = {"lam": 0.4, "same_seed": True, "name": "n", "columns": {"prompt": "q"}, "whitelist": ["nurse"]}
    request, columns = batch_request(given)
    assert request == BatchRequest("n", AuditSettings(lam=0.4, whitelist=("nurse",)), same_seed=True)
    assert columns == {"prompt": "q"}
    assert batch_request(None)[0].name == ""
    with pytest.raises(ServiceError, match=r"no setting 'lamda'.*group_thresholds"):
        batch_request({"lamda": 1})


def test_a_batch_begins_with_its_largest_effect_and_with_the_impact_ratio_once_a_rule_gives_one(view):
    assert re.findall(r"[\d.]+\d", strongest_finding(view.rows)) == ["3.6", "10", "24"]
    rule = OutcomeRule("yes", "no")
    outcomes = outcomes_of(view.rows, rule)
    table = impact_table(outcomes.pairs)
    said = impact_message(view, rule, outcomes, table)["finding"].striptags()
    assert " ".join(impact_finding(table).split()) in said
    assert re.search(r"impact ratio 1\.00, 95 % interval 0\.\d\d to \d\.\d\d\)", said)
    refused = impact_message(view, rule, "'(' is not a regular <expression>", None)
    assert "regular &lt;expression&gt;" in refused["preview"]
    assert (refused["report"], refused["exports"]) == ("", False)
