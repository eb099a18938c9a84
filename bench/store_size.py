"""Bytes that the store keeps of a step's logits, packed and plain, and what packing takes.

Audits on the embedded model with its calibration; processor time of one thread, so that other work on the machine
counts little. Every packed step is unpacked and compared bit by bit. Intervals are 95 % of Student's t over steps
(sizes) or the range over repeats (times). The last line is JSON.

    python -m bench.store_size [--steps 12] [--repeats 7]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from scipy import stats

from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.kept_logits import KeptLogits
from app.shared.model_host import ModelHost
from bench.reviewers import PROMPTS
from coft_core.logit_basis import LogitBasis, basis_of
from coft_core.stored_logits import StoredLogits
from db.sessions import SessionsRepository


def interval(values: list[int]) -> dict[str, float]:
    """Mean with its interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.mean(values)
    return {"mean": round(mean), "low": round(mean - half), "high": round(mean + half), "n": len(values)}


def milliseconds(work: Callable[[], object], steps: int, repeats: int) -> dict[str, float]:
    """Processor time a step: median and range over repeats, after one that is not counted."""
    found = []
    work()
    for _ in range(repeats):
        began = time.thread_time()
        work()
        found.append(1000 * (time.thread_time() - began) / steps)
    return {
        "median": round(statistics.median(found), 2),
        "min": round(min(found), 2),
        "max": round(max(found), 2),
        "n": repeats,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12, help="steps of each audit")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[bytes] = []
    plain: list[bytes] = []
    with tempfile.TemporaryDirectory(prefix="coft-size-") as folder:
        store = Path(folder) / "store.sqlite3"
        with services(Settings(database_url=f"sqlite:///{store}", device="cpu")) as wired:
            calibration = next(item.id for item in wired[CalibrationService].list("demo") if item.embedded)
            settings = AuditSettings(model="demo", calibration_id=calibration, max_new_tokens=options.steps)
            for prompt in PROMPTS:
                view = wired[AuditService].start(StartAudit(prompt, settings))
                while wired[AuditService].view(view.session_id).finished is None:
                    wired[AuditService].step(view.session_id)
                rows += wired[SessionsRepository].logits(view.branch_id).values()
                plain += wired[KeptLogits].of(view.branch_id).values()
            basis = basis_of(wired[ModelHost].get("demo"))
        file_size = store.stat().st_size
    if basis is None:
        raise SystemExit("The embedded model's logits are no plain product; nothing to measure.")
    kept = [StoredLogits.from_bytes(data) for data in plain]
    if basis.unpacked([data for data in map(basis.packed, kept) if data is not None]) != kept:
        raise SystemExit("Logits did not come back bit by bit.")
    again = LogitBasis.from_bytes(basis.to_bytes())
    count, repeats = len(kept), options.repeats
    found = {
        "benchmark": "store_size",
        "raw_bytes": len(kept[0].values),
        "plain_bytes": interval([len(data) for data in plain]),
        "packed_bytes": interval([len(data) for data in rows]),
        "matrix_bytes_once": len(basis.to_bytes()),
        "file_bytes": file_size,
        "write_packed_ms": milliseconds(lambda: [basis.packed(step) for step in kept], count, repeats),
        "write_plain_ms": milliseconds(lambda: [step.to_bytes() for step in kept], count, repeats),
        "read_packed_ms": milliseconds(lambda: again.unpacked(rows), count, repeats),
        "read_plain_ms": milliseconds(lambda: [StoredLogits.from_bytes(data) for data in plain], count, repeats),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
