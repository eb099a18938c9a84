"""Batches: many prompts audited with the same settings, their outcomes and impact ratios."""

from app.shared.wiring import BATCH, CALIBRATION, CHAINS, Feature, JobPlace, Named, Page

FEATURE = Feature(
    __name__,
    {"batch": "audit many prompts with the same settings, and sum them up by group"},
    Page(
        "Measure",
        "My file",
        "batches",
        ("pages/batch",),
        (*CHAINS, "pages/batch"),
        names=(Named("batch", *BATCH), Named("calibration", *CALIBRATION)),
    ),
    jobs=(JobPlace("batch", "Batch", "batches?batch={batch_id}"),),
)
