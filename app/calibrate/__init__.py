"""Calibrations: prompt sets, runs, and the thresholds that are read off them."""

from app.shared.wiring import CALIBRATION, CHAINS, Feature, JobPlace, Named, Page

FEATURE = Feature(
    __name__,
    {
        "calibrate": "calibrate on a CSV or JSONL prompt set, or resume a calibration",
        "calibrations": "list, show, compare, export, reweight or delete calibrations",
    },
    Page(
        "Setup",
        "Calibrations",
        "calibrate",
        ("pages/calibrate",),
        CHAINS,
        names=(
            Named("run", *CALIBRATION),
            Named("job", "calibration run", "db.jobs.JobsRepository", "calibrate", job="calibration"),
        ),
    ),
    jobs=(JobPlace("calibration", "Calibration", "calibrate?job={id}"),),
)
