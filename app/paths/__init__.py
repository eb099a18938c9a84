"""Paths: many sampled continuations of one prompt in several worlds, merged into a tree and asked one question."""

from app.shared.wiring import CHAINS, SESSION, Feature, JobPlace, Named, Page

FEATURE = Feature(
    __name__,
    {
        "paths": "sample many continuations as typed, masked and swapped, and say whether their answers differ",
        "trees": "list sampled paths, or show one run",
    },
    Page(
        "Audit",
        "Many draws",
        "paths",
        ("pages/paths",),
        (*CHAINS, "pages/paths"),
        names=(
            Named("session", *SESSION),
            Named("run", "run of sampled paths", "db.jobs.JobsRepository", "paths", job="paths"),
        ),
    ),
    jobs=(JobPlace("paths", "Paths", "paths?run={id}"),),
)
