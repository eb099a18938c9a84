"""A project is deleted by an admin who repeats its name while nothing of it is at work, and is gone for everybody."""

import pytest

from app.accounts.projects import ProjectService
from app.accounts.service import AccountService
from app.audit.service import AuditService
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from app.shared.jobs import JobService
from app.shared.rollouts import RolloutPool
from app.shared.visitors import Visitor, answering
from db.scope import in_project
from db.sessions import SessionsRepository
from db.trail import TrailRepository
from db.types import NotFoundError
from db.verdicts import AnnotationFields, AnnotationsRepository
from tests.app.accounts.conftest import PASSWORD
from tests.app.accounts.test_permissions import called
from tests.db.conftest import new_session

ASKED = StartAudit("He said", AuditSettings(model="tiny", max_new_tokens=4, top_p=1.0))


@pytest.fixture
def doomed(served):
    """A project that one lead alone is a member of, with a session and two entries in its verdict log."""
    wired = served.wired
    project = wired[ProjectService].add("Doomed").record
    accounts = {one.name for one in wired[AccountService].list()}
    if "its lead" not in accounts:
        wired[AccountService].add("its lead", "lead", PASSWORD, project="")
    wired[ProjectService].add_member("Doomed", "its lead")
    with in_project(project.id):
        session = SessionsRepository(wired.database).create(new_session())
        for verdict in ("fair", "unfair"):
            AnnotationsRepository(wired.database).add(AnnotationFields(session_id=session.id, verdict=verdict))
    yield project
    if project in [view.record for view in wired[ProjectService].list()]:
        wired[ProjectService].delete("Doomed", "Doomed")


def test_a_project_with_content_stays_until_its_name_is_repeated_and_an_empty_one_goes_at_once(served, doomed):
    projects = deletion = served.wired[ProjectService]
    for repeated in ("", "doomed", "Default"):
        with pytest.raises(ServiceError, match=r"1 session with 2 entries in verdict logs; .* Repeat the"):
            deletion.delete("doomed", repeated)
    assert deletion.delete("doomed", " Doomed ") == ("Doomed is deleted: 1 session with 2 entries in verdict logs.")
    last = served.wired[TrailRepository].list()[-1]
    assert (last.action, last.subject) == (
        "delete a project", "Doomed: 1 session with 2 entries in verdict logs"
    )  # fmt: skip
    assert [one.entries for one in deletion.left()][-1] == 2
    projects.add("Empty")
    assert deletion.delete("Empty") == "Empty is deleted: it was empty."
    with pytest.raises(ServiceError, match="Default cannot be deleted"):
        deletion.delete("Default", "Default")
    with pytest.raises(NotFoundError):
        deletion.delete("Nothing")


def test_its_members_see_it_no_more_and_its_tokens_open_nothing(served, doomed):
    accounts, deletion = served.wired[AccountService], served.wired[ProjectService]
    bound, free = (accounts.add_token("its lead", "tests", 1, only).token for only in ("Doomed", ""))
    with served.client() as client:
        headers = {name: {"Authorization": f"Bearer {token}"} for name, token in (("bound", bound), ("free", free))}
        assert client.get("/account", headers=headers["bound"]).json()["project"] == "Doomed"
        deletion.delete("Doomed", "Doomed")
        assert client.get("/account", headers=headers["bound"]).status_code == 401
        assert client.get("/account", headers=headers["free"]).json()["projects"] == []


def test_what_is_at_work_in_it_is_named_and_keeps_it_until_it_has_ended(served, doomed):
    wired = served.wired
    audits, jobs, deletion = wired[AuditService], wired[JobService], wired[ProjectService]
    lead = wired[AccountService].named("its lead")
    with answering(Visitor(lead.name, "", lead, doomed)):
        begun = audits.start(ASKED)
        going = audits.run(begun.session_id)
        next(going)
        with pytest.raises(ServiceError, match=f"Session {begun.session_id} is running; pause it first"):
            deletion.delete("Doomed", "Doomed")
        going.close()
        job = jobs.submit("kind", "title", _until_cancelled)
        with pytest.raises(ServiceError, match="Doomed has 1 job that has not ended"):
            deletion.delete("Doomed", "Doomed")
        jobs.cancel(job)
        jobs.wait(job)
        assert wired[RolloutPool].steps(begun.branch_id) is not None
        deletion.delete("Doomed", "Doomed")
        # Neither its keys and values nor its steps are kept in memory.
        assert wired[RolloutPool].steps(begun.branch_id) is None
        with pytest.raises(NotFoundError):
            audits.step(begun.session_id, begun.branch_id)


def test_an_admin_alone_deletes_projects(served, doomed):
    with served.client("lead") as lead, served.client("admin") as admin:
        assert lead.post("/gradio_api/call/delete_project", json={"data": ["Doomed", "Doomed"]}).status_code == 403
        assert "Repeat the project" in called(admin, "delete_project", "Doomed", "")
        assert "is deleted" in called(admin, "delete_project", "Doomed", "Doomed")


def _until_cancelled(context):
    while True:
        context.check_cancelled()
