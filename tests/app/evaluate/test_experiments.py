"""Experiments are read with errors that say where; the shipped ones name what exists and say what the paper says."""

from __future__ import annotations

import json

import pytest

from app.evaluate.experiment_files import experiment_names, given_parameters, load_experiment, read_experiment
from app.evaluate.experiments import ChainsTable, ChoiceTable, Experiment, MethodsTable, SuitesTable, number_of
from app.shared.errors import ServiceError
from coft_core.experiments.choice import choose_by_knee
from coft_core.experiments.front import Point
from coft_core.suites.base import Figure
from coft_core.suites.registry import SUITES

NAMED = (
    "alpha_sweep", "baselines", "dropped_spans", "empty_sets", "lambda_sweep", "long_form", "masked_only", "masks",
    "prompt_drift", "scaling", "sentinel", "sequence_miscoverage", "stability", "table1", "table2", "table3", "table4",
)  # fmt: skip
SIX = ("SS", "CP Acc", "BBQ Bias", "BOLD Tox", "Utrecht DP", "COMPAS Gap", "Avg. Rank")


def test_every_experiment_of_the_paper_is_shipped():
    assert experiment_names() == NAMED


@pytest.mark.parametrize("name", NAMED)
def test_a_shipped_experiment_loads_and_names_suites_and_methods_that_exist(name):
    experiment = load_experiment(name)
    known = {suite.key for suite in SUITES}
    assert set(experiment.suites) | set(experiment.instead.values()) <= known
    assert experiment.evaluated()
    assert experiment.differs
    # One that is kept as JSON is read again as it was.
    assert Experiment.model_validate(json.loads(json.dumps(experiment.model_dump(mode="json")))) == experiment
    # Every row of the paper stands in the table, or is one that the experiment says it has none of.
    labels = {method.label for method in experiment.evaluated()}
    for table in experiment.tables:
        for entry in table.paper:
            if isinstance(table, SuitesTable):
                assert set(entry.rows) <= known
            elif isinstance(table, MethodsTable) and name != "masks":
                assert set(entry.rows) <= labels


def paper(name, model, place=0):
    table = load_experiment(name).tables[place]
    entry = next(entry for entry in table.paper if entry.model == model)
    return table.heads, {row: tuple(None if f is None else number_of(f)[0] for f in figures)
                         for row, figures in entry.rows.items()}  # fmt: skip


def test_the_bias_tables_say_what_the_paper_says():
    heads, rows = paper("table1", "LLaMA-2-13B")
    assert heads == SIX
    assert rows["Vanilla"] == (0.41, 58.7, 0.27, 0.123, 0.184, 0.161, 5.8)
    assert rows["DT-CD"] == (0.31, 61.3, 0.19, 0.094, 0.141, 0.136, 2.8)
    assert rows["COFT"] == (0.26, 63.5, 0.14, 0.079, 0.118, 0.119, 1.0)
    assert paper("table1", "Mistral-7B-Instruct")[1]["SDD"] == (0.34, 61.2, 0.20, 0.101, 0.146, 0.139, 3.9)
    heads, rows = paper("baselines", "Qwen2-7B")
    assert heads == SIX
    assert rows["Adv. LM-Head"] == (0.30, 62.5, 0.18, 0.093, 0.138, 0.129, 2.0)
    assert paper("baselines", "Mixtral-8x7B-Instruct")[1]["CDA"] == (0.28, 64.0, 0.16, 0.088, 0.129, 0.123, 2.0)
    entries = load_experiment("baselines").tables[0].paper
    assert [len(entry.rows) for entry in entries] == [10] * 6
    assert number_of(entries[0].rows["Vanilla"][1]) == (57.6, 0.4)
    assert number_of(entries[0].rows["COFT"][3]) == (0.078, 0.002)


def test_the_utility_tables_say_what_the_paper_says():
    heads, rows = paper("table2", "LLaMA-2-13B")
    assert heads == ("GSM8K", "StrategyQA", "ARC-easy", "PIQA", "PPL", "MAUVE")
    assert rows["DExperts"] == (46.8, 70.3, 73.7, 77.8, 15.8, 0.77)
    assert paper("table2", "Mistral-7B-Instruct")[1]["COFT"] == (51.0, 73.6, 77.8, 79.5, 13.9, 0.81)
    assert paper("table2", "LLaMA-2-7B")[1]["Vanilla"] == (44.6, 69.8, 72.1, 77.0, 16.2, 0.77)


@pytest.mark.parametrize(
    ("name", "place", "model", "row", "figures"),
    [
        ("table3", 0, "LLaMA-2-13B", "COFT", (108.2, 10.2, 27.1)),
        ("table3", 0, "Mistral-7B-Instruct", "DExperts", (149.1, 8.4, 19.5)),
        ("table3", 0, "Mixtral-8x7B-Instruct", "COFT", (159.0, 10.8, 31.0)),
        ("table4", 0, "LLaMA-2-13B", "COFT (full)", (0.129, 68.0)),
        ("table4", 0, "LLaMA-2-13B", "w/o fusion (CP only)", (0.171, 68.2)),
        ("masked_only", 0, "Mistral-7B-Instruct", "Masked-only", (0.34, 0.22)),
        ("sentinel", 0, "averaged", "someone", (-0.4, 46, 0.6)),
        ("empty_sets", 0, "not named", "bold", (0.8, 0.9, 4.1)),
        ("sequence_miscoverage", 0, "LLaMA-2-13B", "alpha 0.1", (0.142,)),
        ("prompt_drift", 0, "LLaMA-2-13B", "Topic-shifted", (0.87, 1.4, 0.08)),
        ("masks", 0, "not named", "COFT-Joint", (0.11, 73.2)),
        ("masks", 1, "not named", "COFT-Factorized", (None, 38, None)),
        ("scaling", 0, "LLaMA-2-13B", "4096", (102, 92, None)),
        ("scaling", 1, "LLaMA-2-13B", "16", (248, 224, None)),
        ("lambda_sweep", 0, "LLaMA-2-13B", "lambda 0.6", (0.147, 68.0)),
        ("alpha_sweep", 0, "LLaMA-2-13B", "alpha 0.05", (0.145, 67.7)),
        ("alpha_sweep", 1, "averaged", "alpha 0.1", (0.107, 0.105)),
        ("alpha_sweep", 1, "Mistral-7B-Instruct", "alpha 0.2", (0.203, 0.17)),
        ("stability", 0, "Mistral-7B-Instruct", "Mean", (0.39,)),
        ("long_form", 0, "LLaMA-2-13B", "govreport", (45.3, 44.7, 4.3, 1.9)),
    ],
)
def test_the_other_tables_say_what_the_paper_says(name, place, model, row, figures):
    assert paper(name, model, place)[1][row] == figures


def test_the_knee_rule_chooses_what_the_paper_chooses_on_the_values_that_are_shipped():
    for name, model, chosen in (
        ("lambda_sweep", "LLaMA-2-13B", 0.6),
        ("lambda_sweep", "Mistral-7B-Instruct", 0.6),
        ("alpha_sweep", "LLaMA-2-13B", 0.1),
    ):
        points = [
            Point(float(row.split()[1]), Figure("b", "B", bias), Figure("u", "U", utility))
            for row, (bias, utility) in paper(name, model)[1].items()
        ]
        assert choose_by_knee(points).chosen == chosen


def test_values_of_a_sweep_are_methods_with_labels_of_their_own():
    methods = load_experiment("lambda_sweep").evaluated()
    assert [(method.label, method.settings.lam) for method in methods[:2]] == [("lambda 0", 0.0), ("lambda 0.2", 0.2)]
    assert all(method.calibrated and method.settings.alpha == 0.1 for method in methods)
    assert [method.settings.alpha for method in load_experiment("alpha_sweep").evaluated()][-1] == 0.2


def test_methods_that_need_something_say_what_and_the_others_nothing():
    needs = {entry.method: set(entry.needs) for entry in load_experiment("baselines").methods if entry.needs}
    assert needs == {"CDA=cda": {"checkpoint"}, "Adv. LM-Head=adv_lm_head": {"checkpoint"}}


def test_what_is_given_belongs_to_a_policy_of_the_experiment():
    methods = load_experiment("baselines").evaluated()
    assert given_parameters({"cda.checkpoint": "folder"}, methods) == {"cda": {"checkpoint": "folder"}}
    for name in ("checkpoint", "cda.expert", "gedi.discriminator"):
        with pytest.raises(ServiceError, match=r"policy\.parameter"):
            given_parameters({name: "folder"}, methods)


# Files of users.

GOOD = """
title: Mine
source: nowhere
shows: something
suites: [stereoset, arc_easy]
methods:
  - method: Vanilla=vanilla
  - method: Ours=coft:calibrated,lam=0.4
averages:
  utility: [{suite: arc_easy}]
tables:
  - kind: methods
    title: Both
    columns:
      - {title: SS, suite: stereoset, figure: excess, shown: size}
      - {title: Utility, average: utility, against: Vanilla}
    paper:
      - {model: m, source: s, rows: {Vanilla: [0.4±0.1, null]}}
"""


def written(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def test_a_users_own_file_is_read_by_its_path(tmp_path):
    experiment = load_experiment(str(written(tmp_path, GOOD)))
    assert [method.label for method in experiment.evaluated()] == ["Vanilla", "Ours"]
    assert isinstance(experiment.tables[0], MethodsTable)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title: Mine", "titel: Mine", "the field title is wrong: field required"),
        ("shows: something", "shows: something\nextra: 1", "the field extra is wrong"),
        ("suites: [stereoset, arc_easy]", "suites: [stereoset, x]", "field suites.1 is wrong: there is no suite"),
        ("suite: stereoset, figure", "suite: bbq, figure", "tables.0.columns.0.suite is wrong: 'bbq' is not among"),
        ("Ours=coft:calibrated,lam=0.4", "Ours=cofd", "the field methods.1.method is wrong: there is no policy 'cofd'"),
        ("Ours=coft:calibrated,lam=0.4", "Vanilla=coft", "the field methods is wrong: two methods are called"),
        ("against: Vanilla", "against: Plain", "columns.1.against is wrong: there is no method 'Plain'"),
        ("shown: size", "shown: huge", "tables.0.columns.0.shown is wrong"),
        ("average: utility,", "average: bias,", "columns.1.average is wrong: the field averages.bias is empty"),
        ("kind: methods", "kind: pictures", "the field tables.0 is wrong"),
        ("kind: methods", "kind: choice", "the field tables.0.columns is wrong"),
        ("[0.4±0.1, null]", "[0.4]", "the row 'Vanilla' of m has 1 figures for 2 columns"),
        ("[0.4±0.1, null]", "[much, null]", "'much' is no number"),
        ("average: utility, against", "average: utility, rank: bias, against", "one of them and no method"),
        ("source: nowhere", "source: nowhere\nsource: x", "line 4: this is no YAML (the field 'source' stands twice)"),
        ("suites: [stereoset", "suites: [stereoset: [", "line "),
        ("method: Vanilla=vanilla", "method: Vanilla=vanilla\n    needs: {expert: x}", "methods.0.needs is wrong"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_file_and_field(tmp_path, old, new, said):
    assert old in GOOD
    with pytest.raises(ServiceError) as raised:
        read_experiment(written(tmp_path, GOOD.replace(old, new, 1)))
    assert str(raised.value).startswith("mine.yaml")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_table_that_needs_a_sweep_is_refused_without_one(tmp_path):
    tables = GOOD[: GOOD.index("tables:")] + "tables:\n  - {kind: choice, title: Chosen}\n"
    with pytest.raises(ServiceError, match=r"mine\.yaml, line \d+: the field tables\.0 .* sweep"):
        read_experiment(written(tmp_path, tables))


def test_a_file_without_fields_or_that_makes_an_object_is_refused(tmp_path):
    for content, said in (
        ("", "no fields"), ("- a\n- b\n", "no fields"), ("just words", "no fields"),
        ("title: !!python/object/apply:os.getcwd []\n", "no YAML"),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match=said):
            read_experiment(written(tmp_path, content))


def test_names_and_files_that_there_are_not_are_refused_with_a_choice(tmp_path):
    with pytest.raises(ServiceError, match="no experiment 'table9'; choose one of alpha_sweep"):
        load_experiment("table9")
    with pytest.raises(ServiceError, match="no file"):
        load_experiment(str(tmp_path / "none.yaml"))
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ServiceError, match=r"bytes\.yaml cannot be read"):
        load_experiment(str(tmp_path / "bytes.yaml"))


def test_sweeps_and_chains_of_shipped_experiments_are_as_in_the_paper():
    sweep = load_experiment("alpha_sweep").sweep
    assert (sweep.knob, sweep.values) == ("alpha", (0.02, 0.05, 0.1, 0.15, 0.2))
    (chains,) = load_experiment("sequence_miscoverage").tables
    assert isinstance(chains, ChainsTable)
    assert chains.alphas == sweep.values
    assert isinstance(load_experiment("lambda_sweep").tables[0], ChoiceTable)
