"""Results in the formats of other programs: each source becomes one record, which their own readers read."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries
from jsonschema import Draft7Validator

from app.batch import published as batches
from app.batch.formal import RatesRule
from app.batch.rows import group_totals
from app.batch.service import BatchRequest, BatchView
from app.evaluate import published as evaluations
from app.gate import published as checks
from app.gate.file import read_check
from app.gate.run import Checked, Item, Judged
from app.report.bundle import bundle_digest, pack, unpack
from app.report.results_bundle import RESULTS
from app.report.service import ReportService
from app.report.verify.run import BundleVerifier
from app.shared.errors import ServiceError
from app.shared.results.every_eval_ever import directed, every_eval_ever_json
from app.shared.results.formats import SHARED
from app.shared.results.inspect_file import inspect_results
from app.shared.results.lm_eval import lm_eval_json
from app.shared.results.publication import Publication
from app.shared.results.record import Result, Results
from tests.app.batch.test_outcomes_and_totals import ROW
from tests.app.evaluate.made import COFT, VANILLA, Questions, questions, rights, suite_table, view_of

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
SCHEMA = Draft7Validator(json.loads(Path(__file__).with_name("schemas").joinpath(
    "every_eval_ever-0.2.0.schema.json").read_text("utf-8")))  # fmt: skip
TOLD = Publication("Lab", "third_party", "lab/bench", "default")
CHECK = """
prompts: prompts.csv
method: coft,lam=0.4
outcomes: {hired: {selected: [" Yes"], other: [" No"]}}
claims: ["gap(hired, men, women) <= 0.10", "gap(hired, men, women) < 0.3", "impact_ratio >= 0.8", "coverage > 0.9"]
"""


def of_evaluation(folder):
    given = [questions("Vanilla", rights("rw" * 10)), questions("COFT", rights("r" * 20))]
    sample = {
        "suite": "questions", "policy": "COFT", "seed": 1, "id": "q000", "unit": "q000", "prompt": "Who?",
        "texts": [" she", " he"], "answer": [-1.0, -2.0], "score": 1.0, "masked": [], "unread": "",
    }  # fmt: skip
    return evaluations.results_of(view_of(VANILLA, COFT), [suite_table(Questions(), [VANILLA, COFT], given)], [sample])


def of_check(folder):
    (folder / "audit.yaml").write_text(CHECK)
    asked = read_check(folder / "audit.yaml")
    judged = [
        Judged(claim, "fail", low, high, estimate, 40)
        for claim, (low, high, estimate) in zip(
            asked.claims, [(0.1, 0.3, 0.2), (0.1, 0.3, 0.2), (0.5, 0.9, 0.7), (0.0, 1.0, None)], strict=True
        )
    ]
    items = (Item(2, "1", "men", "hired", 0.75),)
    checked = Checked(asked, "tiny", "sha256:ab", "sha256:cd", tuple(judged), 40, 2, (), 1.0, items)
    return checks.results_of(checked, {2: "He left"}, WHEN)


def of_batch(folder):
    rows = tuple(
        replace(ROW, line=line, group=group, text=text, mean_log_ratio=0.5)
        for line, (group, text) in enumerate([("men", "hired"), ("men", "hired"), ("women", "hired"), ("women", "no")])
    )
    view = BatchView(
        3, "a batch", BatchRequest("a batch"), "prompts.csv", WHEN, rows, {}, group_totals(rows), None, False, ()
    )
    return batches.results_of(view, RatesRule("hired"), "sha256:cd", "sha256:ab")


@pytest.fixture(params=[of_evaluation, of_check, of_batch])
def results(request, tmp_path):
    return request.param(tmp_path)


def test_each_source_says_the_same_figures_as_its_own_output(tmp_path):
    found = {one.key: one for one in of_evaluation(tmp_path).results}
    assert (found["questions/accuracy/COFT"].value, found["questions/accuracy/Vanilla"].value) == (1.0, 0.5)
    # Two claims on one measure are one result; what was not measured is none.
    gap, ratio = of_check(tmp_path).results
    assert (gap.metric, gap.value, gap.ends, gap.n, gap.better) == (
        "gap(hired, men, women)",
        0.2,
        (0.1, 0.3),
        40,
        "lower",
    )
    assert (ratio.metric, ratio.better, ratio.level) == ("impact_ratio", "higher", 0.95)
    by_metric = {one.metric: one for one in of_batch(tmp_path).results}
    assert by_metric["selection_rate(women)"].value == 0.5
    ratio = by_metric["impact_ratio(women)"]
    assert (ratio.value, ratio.n, ratio.low < 0.5 < ratio.high) == (0.5, 2, True)
    assert by_metric["mean_log_ratio(men)"].value == 0.5


def test_every_eval_ever_takes_all_that_has_a_direction_and_names_the_rest(results):
    record = json.loads(json.dumps(every_eval_ever_json(results, TOLD, "1", WHEN)))
    assert [error.message for error in SCHEMA.iter_errors(record)] == []
    told = {entry["evaluation_name"]: entry for entry in record["evaluation_results"]}
    left_out = record["model_info"]["additional_details"].get("left_out", "")
    for one in results.results:
        assert (one.key in told) != (f"{one.key}: " in left_out)
        if one.key in told:
            entry = told[one.key]
            assert entry["score_details"]["score"] == one.value
            assert entry["metric_config"]["lower_is_better"] == (one.better == "lower")
            ends = entry["score_details"]["uncertainty"].get("confidence_interval")
            assert (None if ends is None else (ends["lower"], ends["upper"])) == one.ends


@pytest.mark.parametrize(
    ("value", "ends", "expected"),
    [(0.7, (0.6, 0.8), (0.2, 0.1, 0.3)), (0.45, (0.4, 0.7), (0.05, 0.0, 0.2)), (0.2, (0.1, 0.3), (0.3, 0.2, 0.4))],
)
def test_what_is_best_in_between_is_told_as_the_distance_from_there(value, ends, expected):
    one = Result("s", "share", value, 9, low=ends[0], high=ends[1], better="near the middle", bounds=(0.0, 1.0))
    found = directed(one)
    assert isinstance(found, Result)
    assert (found.value, found.low, found.high) == pytest.approx(expected)
    assert (found.better, found.bounds) == ("lower", (0.0, 0.5))


def test_nothing_is_invented(tmp_path):
    results = of_check(tmp_path)
    for told in (Publication(), Publication("Lab"), Publication("Lab", "friends")):
        with pytest.raises(ServiceError, match=r"relationship|organization"):
            every_eval_ever_json(results, told, "1", WHEN)
    empty = Results("batch", "b", "m", WHEN, (), (Result("s", "effect", 0.1, 3),))
    with pytest.raises(ServiceError, match="no place"):
        every_eval_ever_json(empty, TOLD, "1", WHEN)


def test_lm_evals_table_prints_every_figure(results):
    utils = pytest.importorskip("lm_eval.utils")
    pytest.importorskip("pytablewriter")
    content = json.loads(json.dumps(lm_eval_json(results)))
    assert (
        content.keys() - {"coft_audit"}
        <= pytest.importorskip("lm_eval.result_schema").EvalResults.__annotations__.keys()
    )
    rows = [[cell.strip() for cell in line.split("|")] for line in utils.make_table(content).splitlines()]
    head = rows[0]
    printed = {(line[head.index("Metric")], line[head.index("Filter")]): line[head.index("Value")] for line in rows[2:]}
    expected = {(one.metric.replace(",", ";"), one.method or "none"): one.value for one in results.results}
    assert {place: float(text) for place, text in printed.items()} == pytest.approx(expected, abs=5e-5)


def test_inspect_reads_every_figure_and_sample(results, tmp_path):
    logs = pytest.importorskip("inspect_ai.log")
    path = tmp_path / "log.eval"
    path.write_bytes(inspect_results(results))
    log = logs.read_eval_log(str(path))
    found = {
        (score.name, name): (metric.value, metric.metadata["n"])
        for score in log.results.scores
        for name, metric in score.metrics.items()
    }
    assert found == {("/".join(filter(None, (one.suite, one.method))), one.metric): (one.value, one.n)
                     for one in results.results}  # fmt: skip
    told = [(sample.input, sample.epoch, {k: s.value for k, s in sample.scores.items()}) for sample in log.samples]
    assert told == [(one.prompt, one.seed + 1, dict(one.scores)) for one in results.samples]
    assert log.eval.model == f"coft/{results.model}"


def test_the_hub_reads_one_result_whose_notes_name_the_signed_results(results, shared):
    reports = shared[ReportService]
    with pytest.raises(ServiceError, match="one result"):
        reports.shared(results, "hub", TOLD)
    one = results.results[0]
    chosen = Publication(dataset="lab/bench", task="default", result=one.key, source_url="https://lab.example/b.zip")
    (entry,) = parse_eval_result_entries(yaml.safe_load(reports.shared(results, "hub", chosen)))
    assert (entry.dataset_id, entry.task_id, entry.value) == ("lab/bench", "default", one.value)
    assert entry.source_url == "https://lab.example/b.zip"
    assert datetime.fromisoformat(entry.date) == results.created
    assert bundle_digest(reports.shared(results, "signed", Publication())) in entry.notes
    with pytest.raises(ServiceError, match="dataset"):
        reports.shared(results, "hub", Publication(result=one.key))


def test_a_cards_source_is_the_digest_of_signed_results_that_verify_until_they_are_changed(results, shared, tmp_path):
    reports, path = shared[ReportService], tmp_path / "signed.zip"
    path.write_bytes(reports.shared(results, "signed", Publication()))
    card = ModelCard(reports.shared(results, "card", Publication()).decode())
    assert {one.metric_name: one.metric_value for one in card.data.eval_results} == pytest.approx(
        {one.key: one.value for one in results.results}
    )
    (source,) = {one.source_url for one in card.data.eval_results}
    named = source.removeprefix("ni:///sha-256;")
    assert base64.urlsafe_b64decode(named + "=" * (-len(named) % 4)).hex() == bundle_digest(path.read_bytes())
    verifier = BundleVerifier.wired(shared)
    assert verifier.verify(path, require_signature=True).ok
    files = unpack(path)
    stated = json.loads(files[RESULTS])
    assert [one["value"] for one in stated["results"]] == pytest.approx([one.value for one in results.results])
    stated["results"][0]["value"] += 0.1
    path.write_bytes(pack({**files, RESULTS: json.dumps(stated).encode()}))
    assert not verifier.verify(path).ok


def test_every_format_is_refused_before_there_is_a_figure(shared):
    empty = Results("evaluation", "none", "tiny", WHEN, (), ())
    for form in SHARED:
        with pytest.raises(ServiceError, match="no figure"):
            shared[ReportService].shared(empty, form, TOLD)
