"""Batches: many prompts audited with the same settings, their outcomes and impact ratios."""

from app.shared.wiring import CHAINS, Feature, JobPlace, Page

FEATURE = Feature(
    __name__,
    {"batch": "audit many prompts with the same settings, and sum them up by group"},
    Page("Batches", "batches", ("pages/batch",), (*CHAINS, "pages/batch")),
    jobs=(JobPlace("batch", "Batch", "batches?batch={batch_id}"),),
)
