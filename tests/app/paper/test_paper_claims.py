"""A claim's verdict follows from intervals: shown, not shown, contradicted, or not to be checked here."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from app.evaluate.experiments.figures import Figures
from app.evaluate.experiments.grid import Grid, Line, Paper, Value
from app.evaluate.experiments.named import EXPERIMENTS
from app.evaluate.experiments.speed import MeasuredSpeed, SpeedTable
from app.evaluate.experiments.tables import Column, FiguresTable
from app.paper.claims import Claim, Reads, Run, check, judged, paper_claims
from app.paper.collate import Section, averages
from app.paper.items import EXAMPLES, Item, paper_items
from app.paper.outputs import Made, claim_rows, printed, reading, write_page, write_section
from coft_core.assets import assets_path
from coft_core.experiments.averages import Part
from tests.app.evaluate.test_experiment_tables import experiment, kept, outcomes

ROOT = Path(__file__).resolve().parents[3]
READS = Reads("made", ("Harm",))
CLAIM = Claim("Abstract", "It is so", READS, (20, 40))


def interval(low, high, value=None):
    return Value((low + high) / 2 if value is None else value, None, low, high)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([interval(21, 39)], "shown"),
        ([interval(20, 40), interval(30, 31)], "shown"),
        ([interval(30, 41)], "not shown"),
        ([interval(21, 39), interval(19, 25)], "not shown"),
        ([interval(41, 50)], "contradicted"),
        ([interval(21, 39), interval(1, 5)], "contradicted"),
        ([interval(-math.inf, 19, 5)], "contradicted"),
        ([interval(-math.inf, 30, 5)], "not shown"),
        ([], "cannot be checked here"),
        ([Value(None)], "cannot be checked here"),
        ([Value(30.0)], "cannot be checked here"),
        ([interval(30, 30)], "cannot be checked here"),
        ([interval(21, 39), Value(None)], "cannot be checked here"),
        ([interval(1, 5), Value(None)], "contradicted"),
    ],
)
def test_a_verdict_follows_from_the_intervals_and_not_from_the_values(values, verdict):
    assert judged(CLAIM, values)[0] == verdict


def test_what_one_of_several_figures_contradicts_is_wider_than_what_one_by_itself_does():
    near = interval(40.5, 60.5)
    assert judged(CLAIM, [near])[0] == "contradicted"
    assert judged(CLAIM, [near, *[interval(21, 39)] * 4])[0] == "not shown"


def test_open_bounds_medians_and_choices_have_verdicts_of_their_own():
    most = replace(CLAIM, within=(None, 11))
    assert [judged(most, [interval(*ends)])[0] for ends in ((1, 11), (5, 12), (12, 13))] == [
        "shown", "not shown", "contradicted",
    ]  # fmt: skip
    median = replace(CLAIM, reads=replace(READS, over="median"))
    far = [interval(29, 31), interval(30, 32), interval(80, 90)]
    assert judged(CLAIM, far)[0] == "contradicted"
    assert judged(median, far)[0] == "shown"
    assert judged(median, [far[0], far[2], far[2]])[0] == "contradicted"
    assert judged(median, [*far, Value(None)])[0] == "cannot be checked here"
    chosen = replace(CLAIM, reads=replace(READS, how="chosen"), within=(None, None))
    assert [judged(chosen, [Value(share)])[0] for share in (96.0, 50.0, 4.0)] == [
        "shown", "not shown", "contradicted",
    ]  # fmt: skip


PRINTED = Paper("LLaMA-2-13B", "Table 9", {"Vanilla": (Value(0.4),), "COFT": (Value(0.3),)})
TABLE = FiguresTable("All", (PRINTED,), (Column("Harm", Part("harm")), Column("Task", Part("task"))))


def run_of(coft, vanilla, model="demo", **told):
    found = {("harm", "COFT"): outcomes(coft), ("harm", "Vanilla"): outcomes(vanilla)}
    figures = kept(experiment(TABLE), found, model=model, **told)
    return Run(model, figures, tuple(table.grid(figures) for table in figures.experiment.tables))


FALLEN = Claim("Abstract", "It falls", replace(READS, against="Vanilla", how="reduction"), (20, 40))
MIXED = [0.1, 0.9] * 30


def test_a_reduction_is_read_over_the_same_units_and_beside_the_papers_own_values():
    lower = run_of([0.7 * value for value in MIXED], MIXED)
    checked = check(FALLEN, [lower])
    ((name, value),) = checked.found
    # Each unit falls by just 30 %, which no interval of the two figures by themselves would show.
    assert (name, value.value) == ("Harm", pytest.approx(30))
    assert value.low == pytest.approx(30)
    assert checked.verdict == "cannot be checked here"
    noisy = run_of([value * (0.6 if place % 3 else 0.9) for place, value in enumerate(MIXED)], MIXED)
    assert check(FALLEN, [noisy]).verdict == "shown"
    assert check(FALLEN, [run_of(MIXED, MIXED[::-1])]).verdict in ("not shown", "contradicted")
    assert checked.printed == (pytest.approx(25), pytest.approx(25))
    assert checked.holds_in_print is True
    assert printed(checked).endswith("as claimed")
    assert replace(checked, claim=replace(FALLEN, within=(30, 40))).holds_in_print is False
    ratio = replace(FALLEN, reads=replace(FALLEN.reads, how="ratio"), within=(60, 80))
    assert check(ratio, [noisy]).verdict == "shown"
    difference = replace(FALLEN, reads=replace(FALLEN.reads, how="difference"), within=(None, 0))
    assert check(difference, [noisy]).verdict == "shown"
    assert check(difference, [noisy]).printed == (pytest.approx(-0.1), pytest.approx(-0.1))


def test_where_there_is_nothing_to_reduce_the_reduction_is_without_bound():
    none = check(FALLEN, [run_of([0.0, 0.1] * 20, [0.0] * 40)])
    assert none.found[0][1].value == -math.inf
    assert check(FALLEN, [run_of([0.0] * 40, [0.0] * 40)]).found[0][1].value == 0


def test_a_claim_reads_all_models_and_says_what_it_lacks():
    good = run_of([value * (0.6 if place % 3 else 0.9) for place, value in enumerate(MIXED)], MIXED)
    bad = run_of([1.5 * value for value in MIXED[:-1]] + [0.3], MIXED, model="Mixtral-8x7B")
    assert check(FALLEN, [good, bad]).verdict == "contradicted"
    assert [name for name, _ in check(FALLEN, [good, bad]).found] == ["demo, Harm", "Mixtral-8x7B, Harm"]
    mixtral = replace(FALLEN, reads=replace(FALLEN.reads, model="Mixtral"))
    assert check(mixtral, [good, bad]).verdict == "contradicted"
    missing = check(mixtral, [good])
    assert (missing.verdict, missing.found) == ("cannot be checked here", ())
    assert "Mixtral" in missing.reason
    absent = check(replace(FALLEN, reads=replace(FALLEN.reads, columns=("Task",))), [good])
    assert absent.verdict == "cannot be checked here"
    assert reading(absent) == [("Task", "none")]
    reason = check(Claim("Appendix", "Never", reason="Nobody knows."), [good])
    assert (reason.verdict, reason.reason) == ("cannot be checked here", "Nobody knows.")
    (row,) = claim_rows(reason)
    assert (row["value"], row["why"]) == (None, "Nobody knows.")
    assert [row["figure"] for row in claim_rows(check(FALLEN, [good, bad]))] == ["demo, Harm", "Mixtral-8x7B, Harm"]


def test_differences_of_other_tables_come_of_both_intervals():
    lines = tuple(
        Line(name, (Value(100.0), over, None), name)
        for name, over in (("Vanilla", None), ("A", interval(9.0, 11.0)), ("COFT", interval(12.0, 14.0)))
    )
    table = SpeedTable("Speed", ())
    figures = kept(experiment(table), {}, suites=(), speeds={0: MeasuredSpeed(0, lines, ())})
    run = Run("demo", figures, (table.grid(figures),))
    claim = Claim("Here", "Cheaper", Reads("made", ("Overhead, %",), against="A", how="difference"), (None, 0))
    ((_, value),) = check(claim, [run]).found
    assert (value.value, value.low, value.high) == (3.0, 3 - math.sqrt(2), 3 + math.sqrt(2))
    assert check(claim, [run]).verdict == "contradicted"
    assert (
        check(replace(claim, reads=replace(claim.reads, against="Vanilla")), [run]).verdict == "cannot be checked here"
    )
    assert check(replace(claim, reads=Reads("made", ("Overhead, %",)), within=(None, 14)), [run]).verdict == "shown"
    grid = table.grid(figures)
    swept = replace(
        grid, rows=tuple((replace(head, title=f"{head.title}, lambda 0.4"), row) for head, row in grid.rows)
    )
    assert check(claim, [Run("demo", figures, (swept,))]).found == check(claim, [run]).found
    beside = replace(claim.reads, columns=("Tokens a second",), rows=("A",), against="Overhead, %")
    assert check(replace(claim, reads=beside), [run]).found[0][1].value == 90.0
    share = Grid("Speed", "", table.grid(figures).heads, ((table.grid(figures).rows[0][0], (
        Value(0.1, n=200, what="contexts"), None, None)),), ())  # fmt: skip
    covered = replace(claim, reads=Reads("made", ("Tokens a second",), rows=("Vanilla",)), within=(0, 0.2))
    ((_, value),) = check(covered, [Run("demo", figures, (share,))]).found
    assert value.low < 0.1 < value.high


def test_what_the_paper_prints_is_held_against_its_claims_without_any_run():
    printed = {claim.says: check(claim, []).holds_in_print for claim in paper_claims() if claim.reads is not None}
    assert printed["The overhead is at most 11 %"] is True
    # Table 1 has 12 % (0.129 to 0.113) as the smallest reduction against DT-CD, and 26 and 29 % on BBQ.
    assert printed["Bias falls by 20 to 40 % against DT-CD on every data set"] is False
    assert printed["The bias on BBQ falls by 34 to 41 % against DT-CD"] is False
    assert printed["CP accuracy rises by 2.2 to 2.4 points against DT-CD"] is True
    # Table 3 has a smaller overhead for DExperts.
    assert printed["It costs less than DExperts"] is False
    assert printed["MAUVE of long texts is that of vanilla decoding within 0.01"] is True
    assert printed["The knee rule chooses lambda 0.6"] is None


def test_tables_of_every_experiment_are_written_averaged_and_read_where_nothing_is_kept_yet(tmp_path):
    sections, runs = [], {}
    for name, own in EXPERIMENTS.items():
        figures = Figures(own, "demo", own.evaluated(), {}, {})
        grids = tuple(table.grid(figures) for table in own.tables)
        both = [Section(name, "demo", grids), Section(name, "other", grids)]
        sections += [*both, averages(both)]
        runs[name] = [Run("demo", figures, grids)]
    claims = tuple(check(claim, runs.get(claim.experiment, ())) for claim in paper_claims())
    made = Made(tmp_path, (), tuple(sections), (), claims)
    for section in sections:
        write_section(tmp_path, section)
    page = write_page(made).read_text("utf-8")
    assert made.verdicts == {"cannot be checked here": len(claims)}
    assert len(list(tmp_path.glob("tables/*.csv"))) == len(sections)
    assert all(f"<h2 id=\"{item.label.lower().replace(' ', '-')}\">" in page for item in paper_items()
               if {*item.experiments} & {*EXPERIMENTS, ""} or item.reason)  # fmt: skip


def test_every_claim_names_what_its_experiment_has():
    for claim in paper_claims():
        assert (claim.reads is None) == bool(claim.reason)
        if claim.reads is None or claim.experiment not in EXPERIMENTS:
            continue
        own = EXPERIMENTS[claim.experiment]
        titles = [table.title for table in own.tables]
        table = own.tables[titles.index(claim.reads.table) if claim.reads.table else 0]
        assert claim.reads.how == "chosen" or claim.within != (None, None)
        if isinstance(table, FiguresTable):
            named = {*claim.reads.columns, *((claim.reads.against,) if table.rows == "suites" else ())} - {""}
            assert named <= {column.title for column in table.columns}, claim.says
            labels = set(own.suites) if table.rows == "suites" else {method.label for method in own.evaluated()}
            beside = () if table.rows == "suites" else (claim.reads.against or "COFT",)
            rows = {*claim.reads.rows, *beside} - ({"COFT"} if claim.reads.rows != ("COFT",) else set())
            assert rows <= labels, claim.says


@pytest.mark.parametrize(("name", "kind"), [("items", Item), ("claims", Claim)])
def test_no_field_of_a_file_is_left_unread(name, kind):
    for read in yaml.safe_load(assets_path("paper", f"{name}.yaml").read_text("utf-8")):
        assert set(read) <= {own.name for own in fields(kind)}
        assert set(read.get("reads", {})) <= {own.name for own in fields(Reads)}


def test_the_documents_list_every_item_with_its_experiments_and_its_state():
    text = (ROOT / "docs" / "experiments.md").read_text("utf-8")
    for item in paper_items():
        made = ", ".join(f"`{name}`" for name in item.experiments)
        state = item.needs or ("whole" if made else "no measurement")
        assert f"| {item.label} | {item.title} | {made} | {state} |" in text


def test_every_item_names_an_experiment_or_says_why_there_is_none_and_every_experiment_has_an_item():
    named = {name for item in paper_items() for name in item.experiments}
    assert all(bool(item.experiments) != bool(item.reason) for item in paper_items())
    assert named - {EXAMPLES} == set(EXPERIMENTS)
