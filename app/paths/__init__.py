"""Paths: many sampled continuations of one prompt in several worlds, merged into a tree and asked one question."""

from app.shared.wiring import CHAINS, Feature, JobPlace, Page

FEATURE = Feature(
    __name__,
    {
        "paths": "sample many continuations as typed, masked and swapped, and say whether their answers differ",
        "trees": "list sampled paths, or show one run",
    },
    Page("Paths", "paths", ("pages/paths",), (*CHAINS, "pages/paths")),
    jobs=(JobPlace("paths", "Paths", "paths?run={id}"),),
)
