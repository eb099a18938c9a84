"""Sessions that go to another project, with what their evidence rests on.

A session's rows hang on its own row and go where it goes: branches, steps, spans, the verdict log, tags, assignments,
the bundle that it was imported with. What it names besides is its calibration and its word list, which stay where they
are, because others use them: the other project gets a copy of each, or has the same one already, byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, Table, insert, select, update

from db.audits import batch_rows, imported_sessions, sessions
from db.batches import batches
from db.calibrations import calibration_bins, calibrations
from db.projects import projects
from db.scope import ACCOUNT, PROJECT, counted_account, in_every_project
from db.tables import Store, add_row, find
from db.types import ConflictError
from db.user_lists import user_lists, user_terms


class MovingRepository(Store):
    """Moves sessions between projects; the caller has checked that both may be changed."""

    def move(self, session_ids: Collection[int], project_id: int) -> int:
        """Give sessions to a project, all or none; one that belongs to it already stays as it is."""
        moved = 0
        with in_every_project(), self._database.writing() as connection:
            find(connection, projects, project_id, lock=True)
            for session_id in sorted(set(session_ids)):
                row = find(connection, sessions, session_id, lock=True)
                if row.project_id == project_id:
                    continue
                _require_own_life(connection, session_id)
                _require_new_bundle(connection, session_id, project_id)
                changed = _pointing_there(connection, row, project_id)
                connection.execute(update(sessions).where(sessions.c.id == session_id).values(changed))
                moved += 1
        return moved


def _require_own_life(connection: Connection, session_id: int) -> None:
    """Refuse what a batch, and a comparison that is made of batches, counts among its sessions."""
    named = select(batches.c.name).join(batch_rows, batch_rows.c.batch_id == batches.c.id)
    name = connection.scalar(named.where(batch_rows.c.session_id == session_id))
    if name is not None:
        raise ConflictError(
            f"Session {session_id} belongs to the batch “{name}”, whose figures are made of all of its sessions, and "
            "stays with it: export its evidence bundle and import that in the other project, or duplicate the session "
            "and move the copy. Nothing was moved."
        )


def _require_new_bundle(connection: Connection, session_id: int, project_id: int) -> None:
    """Refuse to bring a bundle into a project that has it: each has a bundle once."""
    digest = select(imported_sessions.c.bundle_digest).where(imported_sessions.c.session_id == session_id)
    same = (
        select(sessions.c.id)
        .join(imported_sessions, imported_sessions.c.session_id == sessions.c.id)
        .where(sessions.c[PROJECT] == project_id, imported_sessions.c.bundle_digest == digest.scalar_subquery())
    )
    if (other := connection.scalar(same)) is not None:
        raise ConflictError(
            f"Session {session_id} was imported, and the other project has the same bundle as session {other}; open "
            "that one. Nothing was moved."
        )


def _pointing_there(connection: Connection, row: Any, project_id: int) -> Mapping[str, Any]:
    """What changes in a session's row: its project, and the numbers of what it names there."""
    changed: dict[str, Any] = {PROJECT: project_id}
    named: dict[str, Any] = {}
    if row.calibration_id is not None:
        named["calibration_id"] = changed["calibration_id"] = _calibration(connection, row.calibration_id, project_id)
    settings = row.policy_settings.get("settings") or {}
    if (number := settings.get("user_list_id")) is not None:
        named["user_list_id"] = _user_list(connection, int(number), project_id, row.id)
    if named:
        changed["policy_settings"] = {**row.policy_settings, "settings": {**settings, **named}}
    return changed


def _calibration(connection: Connection, calibration_id: int, project_id: int) -> int:
    """The same calibration in a project, copied there if it is not; what comes with the program is in all of them.

    The copy names neither a prompt set nor a job, which stay with the one that was made of them.
    """
    row: Any = find(connection, calibrations, calibration_id)._mapping
    if row[PROJECT] in (None, project_id):
        return calibration_id
    alike = select(calibrations.c.id, calibrations.c["values"]).where(
        calibrations.c[PROJECT] == project_id, calibrations.c.fingerprint_digest == row["fingerprint_digest"]
    )
    for key, values in connection.execute(alike.order_by(calibrations.c.id)):
        if values == row["values"]:
            return int(key)
    own = {"prompt_set_id": None, "job_id": None}
    return _copy(connection, calibrations, calibration_id, project_id, calibration_bins, "run_id", **own)


def _user_list(connection: Connection, list_id: int, project_id: int, session_id: int) -> int:
    """The same word list in a project, copied there if it is not; one that is deleted stays so."""
    row = connection.execute(select(user_lists).where(user_lists.c.id == list_id)).one_or_none()
    if row is None or row.project_id == project_id:
        return list_id
    same = select(user_lists.c.id, user_lists.c.digest).where(
        user_lists.c[PROJECT] == project_id, user_lists.c.name == row.name
    )
    there = connection.execute(same).one_or_none()
    if there is not None and there.digest != row.digest:
        raise ConflictError(
            f"Session {session_id} uses the word list “{row.name}”, and the other project has a list of this name with "
            "other terms; replace or remove that one first. Nothing was moved."
        )
    if there is not None:
        return int(there.id)
    return _copy(connection, user_lists, list_id, project_id, user_terms, "user_list_id")


def _copy(
    connection: Connection, table: Table, key: int, project_id: int, parts: Table, owner: str, **changes: Any
) -> int:
    """Copy a row with its parts into a project, counted to who asks, and return the number of the copy."""
    row: dict[str, Any] = connection.execute(select(table).where(table.c.id == key)).one()._asdict()
    del row["id"]
    copied = {**row, PROJECT: project_id, ACCOUNT: counted_account(), **changes}
    copy: int = add_row(connection, table, **copied)
    found: Any = connection.execute(select(parts).where(parts.c[owner] == key)).mappings().all()
    if rows := [{**part, owner: copy} for part in found]:
        connection.execute(insert(parts), rows)
    return copy
