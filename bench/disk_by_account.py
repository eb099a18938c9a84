"""What it costs to count what accounts store: time of a step, time of a sum, and how close the sum is to the file.

Steps are appended in turns to two stores that differ in nothing but that one of them counts (the other has neither its
statement nor its indexes): medians over steps, with the range of the medians of the turns. Processor time and the time
on the clock; the clock's is mostly the disk's. Sums are read in a store with many sessions of one account.

    python -m bench.disk_by_account [--turns 7] [--steps 200] [--sessions 100000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_bytes
from typing import Any

from sqlalchemy import bindparam, text, update

from db import chains
from db.audits import sessions as session_rows
from db.database import Database
from db.disk import COUNTED, DiskRepository
from db.logit_bases import PackedLogits
from db.scope import counted_to, in_project
from db.sessions import SessionsRepository
from tests.db.conftest import new_session, new_step

CANDIDATES, LOGITS = 50, 2_000
"""Of each step: candidates, and bytes of its packed logits."""
PLAIN_TOUCH = update(session_rows).where(session_rows.c.id == bindparam("own")).values(updated_at=bindparam("now"))


class Uncounted:
    """While it is entered, steps are stored as if nothing were counted."""

    def __enter__(self) -> None:
        self._kept = chains._TOUCH, chains.rows_bytes
        chains._TOUCH, chains.rows_bytes = PLAIN_TOUCH, lambda *_: 0  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        chains._TOUCH, chains.rows_bytes = self._kept


def opened(path: Path, counts: bool) -> Database:
    """A new store."""
    database = Database(f"sqlite:///{path}").open()
    if not counts:
        with database.engine.begin() as connection:
            for name in COUNTED:
                connection.execute(text(f"DROP INDEX ix_{name}_account_id_stored_bytes"))
    return database


def appended(database: Database, steps: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each appended step of a new session: on the clock, and of the processor."""
    repository = SessionsRepository(database)
    branch = repository.create(new_session()).active_branch_id
    clock, processor = [], []
    row = new_step(0).candidates[0]
    for index in range(steps):
        step = new_step(index, candidates=(row,) * CANDIDATES, families=(), logits=object())
        packed = PackedLogits(token_bytes(LOGITS), "basis", lambda: b"basis")
        began, worked = time.perf_counter(), time.thread_time()
        repository.append_step(branch, step, packed=packed)
        clock.append(1000 * (time.perf_counter() - began))
        processor.append(1000 * (time.thread_time() - worked))
    return clock, processor


def told(turns: list[list[float]]) -> dict[str, Any]:
    """Median over all, and the range of the medians of the turns."""
    medians = [statistics.median(turn) for turn in turns]
    whole = statistics.median([value for turn in turns for value in turn])
    return {"median": round(whole, 3), "low": round(min(medians), 3), "high": round(max(medians), 3)}


def milliseconds(work: Callable[[], object], times: int = 15) -> dict[str, Any]:
    """Time of a call, after one that is not counted."""
    work()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append([1000 * (time.perf_counter() - began)])
    return {**told(found), "n": times}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200, help="steps of a turn in each store")
    parser.add_argument("--sessions", type=int, default=100_000, help="sessions of the account whose sum is read")
    options = parser.parse_args()
    found: dict[str, Any] = {"turns": options.turns, "steps": options.steps}
    with tempfile.TemporaryDirectory(prefix="coft-disk-") as folder, in_project(1), counted_to(7):
        stores = {name: opened(Path(folder) / f"{name}.db", name == "counted") for name in ("counted", "uncounted")}
        times: dict[str, list[tuple[list[float], list[float]]]] = {name: [] for name in stores}
        empty = stores["counted"].used_bytes
        appended(stores["uncounted"], 20)
        for turn in range(options.turns):
            for name in sorted(stores, reverse=bool(turn % 2)):
                if name == "counted":
                    times[name].append(appended(stores[name], options.steps))
                    continue
                with Uncounted():
                    times[name].append(appended(stores[name], options.steps))
        for name, turns in times.items():
            found[name] = {"clock": told([turn[0] for turn in turns]), "processor": told([turn[1] for turn in turns])}
        disk = DiskRepository(stores["counted"])
        found["sum_of_file"] = round(disk.of_account(7) / (stores["counted"].used_bytes - empty), 3)
        with stores["counted"].engine.begin() as connection:
            names = [column.name for column in session_rows.c if column.name not in ("id", "active_branch_id")]
            listed = ", ".join(f'"{name}"' for name in names)
            connection.execute(
                text(
                    f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {options.sessions}) "
                    f"INSERT INTO audit_sessions ({listed}) SELECT {listed} FROM n, "
                    "(SELECT * FROM audit_sessions LIMIT 1)"
                )
            )
        found["sum"] = {"sessions": options.sessions, **milliseconds(lambda: disk.of_account(7))}
        for store in stores.values():
            store.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
