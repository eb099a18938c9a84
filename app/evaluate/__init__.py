"""Evaluations: methods read the same benchmarks, and every item's outcome is kept."""

from app.shared.wiring import FORMS, Feature, JobPlace, Named, Page

FEATURE = Feature(
    __name__,
    {
        "evaluate": "read benchmarks with methods, and keep what came of every item",
        "evaluations": "list and show evaluations with their figures, resume them, and say which suites there are",
    },
    Page(
        "Measure",
        "Benchmarks",
        "evaluate",
        ("pages/evaluate",),
        (*FORMS, "pages/evaluate"),
        names=(Named("evaluation", "evaluation", "db.evaluations.EvaluationsRepository", "evaluate"),),
    ),
    jobs=(
        JobPlace("evaluation", "Experiment", "evaluate?evaluation={evaluation_id}", about="experiment"),
        JobPlace("evaluation", "Evaluation", "evaluate?evaluation={evaluation_id}"),
    ),
)
