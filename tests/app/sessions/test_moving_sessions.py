"""A session that is moved goes on as if it had always been there, verifies as before, and names nothing elsewhere."""

import functools

import pytest
from sqlalchemy import select

from app.audit.service import AuditService
from app.batch.service import BatchRequest, BatchService
from app.jobs.service import JobService
from app.lists.service import UserListService
from app.report.service import ReportService
from app.report.verify.run import BundleVerifier
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.sessions.moving import SessionMoves
from app.sessions.service import SessionLibrary
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.errors import ServiceError
from app.shared.visitors import Visitor, answering
from coft_core.types import Certificate
from db.accounts import AccountsRepository
from db.calibrations import CalibrationsRepository
from db.disk import DiskRepository
from db.projects import ProjectsRepository
from db.scope import PROJECT, SHARED, counted_to, in_every_project, in_project, owner_of, referred
from db.sessions import SessionsRepository
from db.tables import METADATA
from db.types import ConflictError, NotFoundError
from db.user_lists import UserListsRepository
from tests.app.conftest import calibrated_on
from tests.conftest import prompt_set_csv

HERE, THERE = 1, 2
TERMS = "term,family,action\nrounds,race,mask\nnurse,,keep\n"


def listed(wired, folder, terms=TERMS):
    """A word list called ward, by its number."""
    (folder / "ward.csv").write_text(terms, "utf-8")
    return wired[UserListService].add("ward", wired[UserListService].parse(folder / "ward.csv")).summary.id


@pytest.fixture
def moves(wired):
    ProjectsRepository(wired.database).add("There")
    return wired[SessionMoves]


@pytest.fixture
def asked(wired, moves, tmp_path):
    """An audit under a calibration and a word list of the first project."""
    with in_project(HERE):
        own = listed(wired, tmp_path)
        request = CalibrationRequest(name="set", model="tiny", top_p=1.0, alpha=0.3, user_list_id=own)
        calibration = calibrated_on(wired, tmp_path, prompt_set_csv(), request)
    settings = AuditSettings(
        model="tiny", max_new_tokens=6, top_p=1.0, alpha=0.3, user_list_id=own, calibration_id=calibration
    )
    return StartAudit("The old nurse said he made rounds", settings)


def strangers(database):
    """Tables and columns with a row that names one of another project."""

    @functools.cache
    def project_of(key, number):
        found = connection.execute(select(key.table).where(key == number)).mappings().one()
        return project(key.table, found)

    def project(table, row):
        owner = owner_of(table)
        return row[owner] if owner.name == PROJECT else project_of(referred(owner), row[owner])

    found = []
    with in_every_project(), database.reading() as connection:
        for table in METADATA.tables.values():
            named = [(column, key.column) for column in table.c for key in column.foreign_keys]
            named = [(column, key) for column, key in named if key.table.name not in SHARED]
            if table.name in SHARED or not named:
                continue
            for row in connection.execute(select(table)).mappings():
                for column, key in named:
                    if row[column] is None:
                        continue
                    if project_of(key, row[column]) not in (None, project(table, row)):
                        found.append((table.name, column.name))
    return found


def test_a_moved_session_goes_on_with_the_same_tokens_and_thresholds_and_its_evidence_verifies(
    wired, moves, asked, tmp_path
):
    audits, reports, verifier = wired[AuditService], wired[ReportService], wired[BundleVerifier]
    with in_project(HERE):
        moved, stays = audits.start(asked), audits.start(asked)
        for _ in range(3):
            audits.step(moved.session_id)
        list(audits.run(stays.session_id))
        verdict = VerdictRequest(moved.session_id, "R. Osei", "unfair", moved.branch_id, 1, None, "why", "pronoun")
        wired[VerdictService].add(verdict)
        (tmp_path / "before.zip").write_bytes(reports.bundle(moved.session_id))
        result = moves.move([moved.session_id, moved.session_id, 999], "there")
        assert result.sentence.startswith("1 session moved to There")
        assert (result.asked, result.changed, result.missing) == (2, 1, 1)
        with pytest.raises(NotFoundError):
            audits.step(moved.session_id, moved.branch_id)
        assert moves.move([999], "There").missing == 1
        expected = [(step.token_id, step.log_tau, step.certified) for step in audits.view(stays.session_id).steps]
    assert strangers(wired.database) == []
    with in_project(THERE):
        list(audits.run(moved.session_id))
        view = audits.view(moved.session_id)
        assert [(step.token_id, step.log_tau, step.certified) for step in view.steps] == expected
        (entry,) = wired[VerdictService].whole_history(moved.session_id)
        assert entry.note == "why"
        (tmp_path / "after.zip").write_bytes(reports.bundle(moved.session_id))
        # It can be begun again with all of its settings, which name the list and the calibration of this project.
        again = audits.start(wired[SessionLibrary].prefill(moved.session_id).request)
        assert Certificate.read(again.certificate).kind == Certificate.read(view.certificate).kind
    for name in ("before.zip", "after.zip"):
        assert verifier.verify(tmp_path / name).ok, name
    assert strangers(wired.database) == []


@pytest.mark.slow
def test_two_sessions_bring_one_copy_of_what_they_use_and_none_where_it_is_there_already(wired, moves, asked):
    audits = wired[AuditService]
    calibrations, lists = CalibrationsRepository(wired.database), UserListsRepository(wired.database)
    with in_project(HERE):
        numbers = [audits.start(asked).session_id for _ in range(3)]
        before = [item.id for item in calibrations.list(embedded=False)]
    with in_project(HERE), counted_to(7):
        moves.move(numbers[:2], "There")
    with in_project(HERE):
        moves.move(numbers[2:], "There")
        assert [item.id for item in calibrations.list(embedded=False)] == before
        assert [item.name for item in lists.list()] == ["ward"]
    with in_project(THERE):
        (copy,) = calibrations.list(embedded=False)
        (words,) = lists.list()
        assert calibrations.values(copy.id) == _values(calibrations, before[0])
        assert (copy.prompt_set_id, copy.job_id) == (None, None)
        assert {audits.settings(number).calibration_id for number in numbers} == {copy.id}
        assert {audits.settings(number).user_list_id for number in numbers} == {words.id}
        # And back again: the first project has both.
        moves.move(numbers, "Default")
    with in_project(HERE):
        assert {audits.settings(number).calibration_id for number in numbers} == set(before)
        assert {SessionsRepository(wired.database).get(number).calibration_id for number in numbers} == set(before)
    found = DiskRepository(wired.database).by_account()[7]
    assert found.keys() == {"calibration_runs", "user_lists"}


def _values(calibrations, number):
    with in_project(HERE):
        return calibrations.values(number)


def test_what_cannot_be_moved_is_refused_with_the_reason_and_nothing_of_the_selection_moves(
    wired, moves, asked, tmp_path
):
    audits, batches = wired[AuditService], wired[BatchService]
    (tmp_path / "people.csv").write_text("prompt\nHe is a nurse\n", "utf-8")
    plain = AuditSettings(model="tiny", max_new_tokens=2, top_p=1.0, policy="vanilla")
    with in_project(HERE):
        free = audits.start(StartAudit("He said", plain)).session_id
        batch = batches.submit(batches.parse(tmp_path / "people.csv"), BatchRequest("people", plain))
        wired[JobService].wait(batches.view(batch).job.id)
        (row,) = batches.view(batch).rows
        refused = {row.session_id: "belongs to the batch “people”.*import that in the other project"}
        refused[audits.start(asked).session_id] = "list “ward”, and the other project has a list of this name"
        running = audits.start(asked).session_id
        going = audits.run(running)
        next(going)
        refused[running] = "is running; pause it first"
    with in_project(THERE):
        listed(wired, tmp_path, TERMS + "shift,,keep\n")
    for number, sentence in refused.items():
        with in_project(HERE), pytest.raises((ConflictError, ServiceError), match=sentence):
            moves.move([free, number], "There")
    going.close()
    with in_project(HERE):
        assert audits.view(free).session_id == free
        for name in ("Nowhere", "Default"):
            with pytest.raises(ServiceError, match="choose There"):
                moves.move([free], name)
        with pytest.raises(ServiceError, match="No session is chosen"):
            moves.move([], "There")
    with in_project(THERE):
        assert SessionsRepository(wired.database).list() == []


def test_who_sees_one_project_alone_moves_nothing_and_others_move_to_their_own_alone(wired, moves):
    projects, accounts = ProjectsRepository(wired.database), AccountsRepository(wired.database)
    projects.add("Secret")
    mia = accounts.add("Mia", "lead", None)
    for project in (HERE, THERE):
        projects.add_member(project, mia.id)
    here = projects.get(HERE)
    with in_project(HERE):
        number = (
            wired[AuditService]
            .start(StartAudit("He said", AuditSettings(model="tiny", policy="vanilla", top_p=1.0)))
            .session_id
        )
    with answering(Visitor("Mia", "", mia, here, bound=True)):
        assert moves.targets() == ()
        with pytest.raises(ServiceError, match="no other project"):
            moves.move([number], "There")
    with answering(Visitor("Mia", "", mia, here)):
        assert [project.name for project in moves.targets()] == ["There"]
        with pytest.raises(ServiceError, match="There is no other project 'Secret' that you see; choose There"):
            moves.move([number], "Secret")
        assert moves.move([number], "There").changed == 1
        # From here it is seen no more, so that it cannot be moved again.
        assert moves.move([number], "There").missing == 1
