"""The named experiments name what exists, and say what the paper says."""

from __future__ import annotations

import pytest

from app.evaluate.experiments.figures import INSTEAD, Figures
from app.evaluate.experiments.grid import chosen_paper, published
from app.evaluate.experiments.named import ALPHAS, EXPERIMENTS, experiment_named
from app.evaluate.experiments.tables import FiguresTable
from app.shared.errors import ServiceError
from coft_core.suites.registry import SUITES


def test_every_experiment_names_suites_and_methods_that_exist_and_its_tables_have_the_papers_rows():
    assert len(EXPERIMENTS) == 21
    with pytest.raises(ServiceError, match="no experiment 'table9'; choose one of alpha_sweep"):
        experiment_named("table9")
    known = {suite.key: suite for suite in SUITES}
    for name, experiment in EXPERIMENTS.items():
        methods = experiment.evaluated()
        assert {*experiment.suites, *INSTEAD.values()} <= set(known)
        assert experiment.differs
        assert set(experiment.needs) <= {method.label for method in methods}
        figures = Figures(experiment, "demo", methods, {key: known[key] for key in experiment.suites}, {})
        for table in experiment.tables:
            grid = table.grid(figures)
            ours = {line.title for line, _ in grid.rows if not line.source}
            for paper in table.papers:
                assert all(len(values) <= len(grid.heads) for values in paper.rows.values())
                titles = {known[row].title if row in known else row for row in paper.rows}
                assert titles <= ours or not isinstance(table, FiguresTable) or name == "masks"
            if table.papers:
                assert {line.title for line, _ in grid.rows if line.source} == set(table.papers[0].rows)


def paper(table, model):
    return {
        row: tuple(value and value.value for value in values)
        for row, values in chosen_paper(published()[table], model).rows.items()
    }


def test_the_tables_say_what_the_paper_says():
    for table, model, row, figures in (
        ("table1", "LLaMA-2-13B", "COFT", (0.26, 63.5, 0.14, 0.079, 0.118, 0.119, 1.0)),
        ("table1", "Mistral-7B-Instruct", "SDD", (0.34, 61.2, 0.20, 0.101, 0.146, 0.139, 3.9)),
        ("baselines", "Mixtral-8x7B-Instruct", "CDA", (0.28, 64.0, 0.16, 0.088, 0.129, 0.123, 2.0)),
        ("table2", "LLaMA-2-7B", "Vanilla", (44.6, 69.8, 72.1, 77.0, 16.2, 0.77)),
        ("moe", "Mixtral-8x7B-Instruct", "COFT", (159.0, 10.8, 31.0)),
        ("table4", "LLaMA-2-13B", "w/o fusion (CP only)", (0.171, 68.2)),
        ("selections", "Qwen2-7B-Instruct", "All suites", (0.55, 0.1, 0.186, 0.142, 74.7, 75.2)),
        ("mauve_length", "LLaMA-2-13B", "768", (0.94, 0.933)),
        ("symmetric", "LLaMA-2-7B", "ITI", (0.15, 79.4)),
        ("sentinel", "averaged", "someone", (-0.4, 46, 0.6)),
        ("empty_sets", "not named", "bold", (0.8, 0.9, 4.1)),
        ("masks overhead", "not named", "COFT-Factorized", (None, 38, None)),
        ("scaling lengths", "LLaMA-2-13B", "4096", (102, 92, None)),
        ("alpha_sweep coverage", "Mistral-7B-Instruct", "alpha 0.2", (0.203, 0.17)),
        ("stability", "Mistral-7B-Instruct", "Mean", (0.39,)),
        ("long_form", "LLaMA-2-13B", "govreport", (45.3, 44.7, 4.3, 1.9)),
    ):
        assert paper(table, model)[row] == figures


def test_deviations_of_the_paper_are_read_and_its_rows_are_those_of_the_evaluated_model_or_its_first_one():
    papers = published()["baselines"]
    assert [len(own.rows) for own in papers] == [10] * 6
    assert papers[0].rows["Vanilla"][1].deviation == 0.4
    assert chosen_paper(papers, "mistralai/Mistral-7B-v0.2").model == "Mistral-7B-v0.2"
    assert chosen_paper(papers, "demo").model == "LLaMA-2-7B"
    assert chosen_paper((), "demo") is None


def test_values_of_a_sweep_are_methods_with_labels_of_their_own():
    methods = EXPERIMENTS["lambda_sweep"].evaluated()
    assert [(method.label, method.settings.lam) for method in methods[:2]] == [("lambda 0", 0.0), ("lambda 0.2", 0.2)]
    assert all(method.calibrated and method.settings.alpha == 0.1 for method in methods)
    assert tuple(method.settings.alpha for method in EXPERIMENTS["alpha_sweep"].evaluated()) == ALPHAS
