"""What decisions say by group, what is kept of them, and that a third party can compute it again."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import binomtest

from app.decisions.service import DecisionRequest, DecisionService
from app.report.bundle import bundle_digest, pack, unpack
from app.report.service import DECIDED, ReportService
from app.shared.decisions import MOST_GROUPS, Decision, finding, measured, notes, run_json
from app.shared.errors import ServiceError
from app.shared.formal_reports import Statement
from app.shared.requirements import listed
from coft_core.messages import catalogue
from db.types import NotFoundError
from tests.conftest import verifier

EN = catalogue("en")
SAID = "These outcomes came without probabilities"


def decided(rows):
    """Decisions from group, whether selected, pair and variant."""
    return [
        Decision(line, group, "", chosen, pair, variant) for line, (group, chosen, pair, variant) in enumerate(rows, 2)
    ]


def named(rates, cases=20, seed=3):
    """Rows of names by group, of which each is selected at its own rate in each of some cases."""
    generator = random.Random(seed)
    return decided(
        (group, generator.random() < rate, f"case {case}", name)
        for case in range(cases)
        for group, names in rates.items()
        for name, rate in names.items()
    )


@pytest.fixture
def stored(wired, tmp_path):
    """The sample that ships, read."""
    sample = Path("assets/templates/outcomes.csv")
    request = DecisionRequest(selected="invite", name="hiring")
    service = wired[DecisionService]
    return service.add(service.parse(sample, request), request)


def test_pairs_are_compared_by_mcnemars_test_and_rates_against_the_most_selected_group():
    rows = decided(
        (g, c, str(pair), None) for pair in range(30) for g, c in (("men", pair < 20), ("women", 5 < pair < 15))
    )
    found = measured(rows)
    gained, lost = sum(not 5 < pair < 15 for pair in range(20)), 0
    assert found.tests[0].p_value == pytest.approx(binomtest(gained, gained + lost).pvalue)
    assert {row.group: row.ratio for row in found.table.rows} == {"men": 1.0, "women": pytest.approx(9 / 20)}
    low, high = found.ratios["women"]
    assert low < 9 / 20 < high < 1
    assert found.headline.e_value > 20
    assert "0.45 times as often as “men”" in finding(found, EN)


def test_what_names_of_one_group_do_as_well_is_not_said_to_be_the_group():
    mixed = measured(named({"men": {"Greg": 0.9, "Todd": 0.2}, "women": {"Anne": 0.2, "Emily": 0.3}}, 60))
    assert mixed.headline.adjusted <= 0.05
    assert not mixed.control.holds
    apart = {"men": dict.fromkeys("abcde", 0.8), "women": dict.fromkeys("vwxyz", 0.3)}
    assert measured(named(apart)).control.holds


def test_wordings_that_both_groups_have_are_compared_within_themselves():
    found = measured(named({"men": {"please": 0.9, "now": 0.5}, "women": {"please": 0.9, "now": 0.5}}, 60)).control
    assert (found.kind, found.variants, found.holds) == ("wordings", (2, 2), False)
    assert found.within > abs(found.found.difference)


def test_several_groups_are_tested_together_and_each_two_are_corrected_for_all():
    found = measured(named({group: {group: 0.5} for group in "abcd"}, 80))
    assert found.several.freedom == 3
    assert len(found.tests) == 6
    assert all(test.adjusted >= test.p_value for test in found.tests)
    with pytest.raises(ServiceError, match=f"at most {MOST_GROUPS} are compared"):
        measured(named({str(group): {"x": 0.5} for group in range(MOST_GROUPS + 1)}, 2))


def test_rows_that_decide_nothing_or_name_no_group_are_counted_and_in_no_rate(stored):
    rows = (*stored.decisions, Decision(900, None, "invite", True), Decision(901, "men", "?", None))
    run = replace(stored, decisions=rows, left_out=((7, "outcome is empty"),))
    assert [row.total for row in run.found.table.rows] == [80, 80]
    said = notes(run, EN)
    assert [part.split()[0] for part in said[:3]] == ["1"] * 3
    assert said[-1].startswith(SAID)
    nobody = measured(decided([("a", False, None, None), ("b", False, None, None)]))
    assert (nobody.headline, nobody.control) == (None, None)


def test_a_run_is_kept_as_it_was_read_and_goes_with_its_deletion(wired, stored):
    service = wired[DecisionService]
    assert service.get(stored.id) == stored
    assert [run.row_count for run in service.list()] == [160]
    service.delete(stored.id)
    assert service.list() == []
    with pytest.raises(NotFoundError):
        service.get(stored.id)


def test_a_file_with_bad_rows_is_kept_only_if_they_are_accepted(wired, tmp_path):
    (path := tmp_path / "a.csv").write_text("group,outcome\nmen,yes\nwomen,no\nmen,\n", "utf-8")
    service, request = wired[DecisionService], DecisionRequest()
    with pytest.raises(ServiceError, match=r"line 4 .outcome is empty"):
        service.add(service.parse(path, request), request)
    assert service.list() == []
    request = DecisionRequest(accept_errors=True)
    assert service.add(service.parse(path, request), request).left_out == ((4, "outcome is empty"),)


def test_every_export_says_what_is_not_said(wired, stored):
    for kind in DECIDED:
        suffix, content = wired[ReportService].decided(stored, kind, Statement("R. Osei", "Fair?"))
        assert suffix
        if kind in ("csv", "json", "html", "formal"):
            assert SAID in " ".join(content.decode().split())
    german = wired[ReportService].decided(stored, "formal", Statement(language="de"))[1].decode()
    asked = Statement(annexes=("eu-ai-act", "nyc-notice"))
    annexed = wired[ReportService].decided(stored, "formal", asked)[1].decode()
    titles = [annex["title"]["en"] for annex in listed()["annexes"].values()]
    assert [title for title in titles if title in annexed] == [
        listed()["annexes"][name]["title"]["en"] for name in asked.annexes
    ]
    assert "ohne Wahrscheinlichkeiten" in german
    assert SAID not in german


def changed_rows(data):
    next(row for row in data["decisions"] if row["selected"])["selected"] = False


def changed_outcomes(data):
    next(row for row in data["decisions"] if row["selected"])["outcome"] = "reject"


def changed_numbers(data):
    data["tests"][0]["p_value"] = 0.5


def changed_ratio(data):
    data["groups"][0]["ratio"] = 0.95


def test_a_bundle_is_signed_and_verifies_and_the_same_run_gives_the_same_bytes(wired, stored, settings, tmp_path):
    content = wired[ReportService].decided(stored, "bundle", Statement())[1]
    assert content == wired[ReportService].decided(wired[DecisionService].get(stored.id), "bundle", Statement())[1]
    (path := tmp_path / "b.zip").write_bytes(content)
    found = verifier(settings).verify(path)
    assert found.ok
    assert {check.status for check in found.checks} == {"passed"}
    assert found.bundle_digest == bundle_digest(content)


@pytest.mark.parametrize("change", [changed_rows, changed_outcomes, changed_numbers, changed_ratio])
def test_whatever_is_changed_in_a_bundle_is_found_by_its_digests_and_by_its_numbers(
    wired, stored, settings, tmp_path, change
):
    (path := tmp_path / "b.zip").write_bytes(wired[ReportService].decided(stored, "bundle", Statement())[1])
    files = unpack(path)
    data = json.loads(files["decisions.json"])
    change(data)
    path.write_bytes(pack({**files, "decisions.json": json.dumps(data).encode()}))
    failed = {check.name for check in verifier(settings).verify(path).checks if check.status == "failed"}
    assert failed >= {"Files of the bundle"}
    assert failed & {"Outcomes", "Rates, ratios, tests and evidence"}


def test_json_holds_the_rows_and_everything_that_follows_from_them(stored):
    told = json.loads(json.dumps(run_json(stored)))
    assert len(told["decisions"]) == 160
    assert told["compared"] == ["women", "men"]
    assert told["control"]["kind"] == "names"
