"""What the compare page says of a prompt set: means with intervals, rows that sort and open, and no invented number."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.compare.chains import column_means
from app.compare.set_words import PAGE_ROWS, column_names, means_table, set_message, set_query
from app.compare.types import SetCell, SetColumn, SetComparison, SetRow
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from coft_core.decode.cost import Footprint

COLUMNS = (AuditSettings(policy="vanilla"), AuditSettings(policy="coft", calibration_id=1))
QUERY = {"set": "4", "order": "line", "column": "0", "page": "1", "descending": False}


def row(line, prompt="Who <got> it?", state="finished", sessions=(1, 2)):
    cells = (
        SetCell(state, sessions[0], mean_tv_factual=0.0),
        SetCell(state, sessions[1], parted_at=2, parted=True, mean_tv_factual=0.1 * line, error="Too long."),
    )
    return SetRow(line, prompt, "men & women", None, cells)


def view(rows, columns=COLUMNS):
    made = tuple(
        SetColumn(
            7 + place, own, None, len(rows), 0, column_means(rows, place), Footprint((4,), (10,), 2000, 0), None, False
        )
        for place, own in enumerate(columns)
    )
    return SetComparison(4, "Hiring", datetime(2026, 3, 4, tzinfo=UTC), "p.csv", made, tuple(rows), False, False, ())


def test_a_row_opens_the_sessions_of_all_its_columns_and_text_is_escaped():
    shown = set_message(view([row(2)]), set_query(QUERY))["rows"]
    assert 'data-sessions="1,2"' in shown
    assert "Who &lt;got&gt; it?" in shown
    assert "men &amp; women" in shown
    assert '<td class="n first">3</td>' in shown, "steps count from 1"


def test_a_row_that_a_column_has_no_session_for_cannot_be_opened():
    shown = set_message(
        view([row(2, sessions=(1, None)), row(3, state="failed", sessions=(None, None))]), set_query(QUERY)
    )
    assert "data-sessions" not in shown["rows"]
    assert 'title="Too long."><span class="caution">failed</span>' in shown["rows"]


def test_means_have_their_interval_their_number_and_a_dash_for_what_nothing_is_known_of():
    table = means_table(view([row(1), row(2), row(3)]).columns, ["Vanilla", "COFT"])
    assert '0.200 <span class="hint">0.000 to 0.448, n = 3</span>' in table
    assert '0.000 <span class="hint">n = 3</span>' in table, "equal values tell nothing of their spread"
    assert "Weights of the model" in table
    assert "further" not in table
    assert "Certified share" not in table


def test_rows_come_in_pages_and_a_page_beyond_the_last_is_the_last():
    message = set_message(view([row(line) for line in range(2, PAGE_ROWS + 12)]), set_query({**QUERY, "page": "9"}))
    assert (message["page"], message["pages"], message["where"]) == (2, 2, "51 to 60 of 60")
    assert message["rows"].count("<tr data-line") == 10


def test_the_column_that_sorts_says_so():
    query = set_query({**QUERY, "order": "mean_tv_factual", "column": "1", "descending": True})
    shown = set_message(view([row(2)]), query)["rows"]
    assert shown.count('aria-sort="descending"') == 1
    assert shown.index('aria-sort="descending"') > shown.index('data-column="0"')


def test_columns_of_one_policy_are_told_apart_by_their_settings():
    twice = (COLUMNS[1], replace(COLUMNS[1], lam=0.9))
    assert column_names(view([row(2)], twice).columns) == ["COFT (λ 0.60, α 0.10)", "COFT (λ 0.90, α 0.10)"]


@pytest.mark.parametrize(("change", "sentence"), [({"order": "id"}, "no order 'id'"), ({"page": "x"}, "page cannot")])
def test_a_query_that_cannot_be_read_is_one_sentence(change, sentence):
    with pytest.raises(ServiceError, match=sentence):
        set_query({**QUERY, **change})
