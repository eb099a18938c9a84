"""Projects: nobody but a member sees anything of one, and one is deleted only whole."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

from app.accounts.permissions import PAGES
from app.accounts.projects import ProjectService
from app.accounts.service import AccountService
from app.audit.service import AuditService
from app.bootstrap import FEATURES
from app.hosting.rollouts import RolloutPool
from app.jobs.service import JobService
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from app.shared.needs import EXPORT, READ
from app.shared.visitors import Visitor, answering
from db.projects import ProjectsRepository
from db.scope import in_project, present_project
from db.sessions import SessionsRepository
from db.trail import TrailRepository
from db.types import NotFoundError
from db.verdicts import AnnotationFields, AnnotationsRepository
from tests.app.accounts.conftest import PASSWORD, serving
from tests.app.accounts.test_permissions import called
from tests.db.conftest import new_session
from tests.db.test_store_projects import fill

SECRET = "Zanzibar"
FILLED = "Night shift"
"""What the sessions of the rows are called that stand in every table."""
DEFAULT, FIRST = 1, 1


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Things of each kind are known by the numbers that a new store gives them."""
    with serving(tmp_path_factory.mktemp("walled")) as made:
        yield made


@pytest.fixture(scope="module")
def walled(served):
    """Tokens of a member of the first project alone, of another one alone, of both, and of none."""
    accounts, projects = served.wired[AccountService], served.wired[ProjectService]
    projects.add("Other")
    for name, wanted in {"inside": ["Default"], "outside": ["Other"], "both": ["Default", "Other"], "none": []}.items():
        accounts.add(name, "lead", PASSWORD, project="")
        for project in wanted:
            projects.add_member(project, name)
    with in_project(DEFAULT):
        fill(served.wired.database)
        SessionsRepository(served.wired.database).create(new_session(name=SECRET, prompt=f"{SECRET} is far"))
    return {name: accounts.add_token(name, "tests", 1).token for name in ("inside", "outside", "both", "none")}


def program(served, token, **headers):
    return httpx.Client(base_url=served.url, timeout=60, headers={"Authorization": f"Bearer {token}", **headers})


def arguments(operation, number):
    """What an operation is asked with: a number where it takes one, and what it has as default elsewhere."""
    given = []
    for argument in operation.arguments:
        kind = str(argument.annotation)
        if "Path" in kind:
            return None
        if "int" in kind and ("id" in argument.name or argument.name in ("session", "job", "number")):
            given.append([number] if kind.startswith(("list", "tuple", "collections")) else number)
        elif argument.required:
            given.append([number, number + 1] if "int" in kind else "csv" if "str" in kind else {})
        else:
            given.append(argument.plain_default)
    return given


def answered(served, who, operation, given):
    """What an operation answers to an account, in the project that a request of it would be about."""
    account = served.wired[AccountService].named(who)
    project = served.wired[ProjectService].asked(account)
    with answering(Visitor(account.name, "", account, project)):
        try:
            result = operation.call(served.wired, **operation.checked(given))
            return json.dumps((operation.json or str)(result), default=str)
        except Exception as error:
            # Rows that stand for nothing cannot always be read; what counts is that everybody outside is told the same.
            return f"{type(error).__name__}: {error}"


def test_no_operation_that_reads_tells_who_is_outside_anything(served, walled):
    """Every one that is declared, asked with the numbers that the project's first things of each kind have."""
    reading = [
        operation
        for feature in FEATURES
        for operation in feature.operations
        if operation.endpoint and operation.need in (READ, EXPORT)
    ]
    assert len(reading) > 25
    differing = []
    for operation in reading:
        if (given := arguments(operation, FIRST)) is not None:
            told = {who: answered(served, who, operation, given) for who in ("inside", "outside", "none")}
            assert told["outside"] == told["none"], operation.name
            assert not any(word in told["outside"] for word in (SECRET, FILLED)), operation.name
            differing += [operation.name] if told["inside"] != told["outside"] else []
    assert {"list_sessions", "list_verdicts", "list_assignments", "job", "user_lists", "deleted_verdict_logs"} <= {
        *differing
    }


def test_pages_routes_and_the_bell_tell_who_is_outside_nothing(served, walled):
    with program(served, walled["inside"]) as inside, program(served, walled["outside"]) as outside:
        asked = [f"/audit/chain?session={number}" for number in (1, 3)]
        for page in PAGES:
            names = next((f.page.names for f in FEATURES if f.page and f.page.path == page), ())
            # The first calibration is the one that comes with the program.
            asked += [f"/{page}", *(f"/address/{page}?{n.parameter}=1" for n in names if "alibration" not in n.what)]
        asked += ["/jobs", "/account", "/metrics", "/config"]
        for address in asked:
            answer = outside.get(address)
            assert SECRET not in answer.text, address
            assert FILLED not in answer.text, address
            if address.startswith("/address/") and not inside.get(address).json()["missing"]:
                assert answer.json()["missing"], address
        assert outside.get("/audit/chain?session=1").status_code == 404
        missing = outside.get("/address/?session=1").json()["missing"]
        assert [item["said"] for item in missing] == ["There is no session 1. It may have been deleted."]
        assert inside.get("/address/?session=1").json()["missing"] == []


def test_a_program_names_its_project_and_a_token_of_one_opens_no_other(served, walled):
    with program(served, walled["both"]) as client:
        assert SECRET in called(client, "list_sessions", "")
        assert client.get("/account").json()["project"] == "Default"
    with program(served, walled["both"], **{"X-COFT-Project": "other"}) as client:
        assert SECRET not in called(client, "list_sessions", "")
        assert client.get("/account").json()["project"] == "Other"
    for name in ("Default", "Nothing"):
        with program(served, walled["outside"], **{"X-COFT-Project": name}) as client:
            answer = client.get("/account")
            assert (answer.status_code, name in answer.text) == (404, True)
    with program(served, walled["none"]) as client:
        assert SECRET not in called(client, "list_sessions", "")
        assert client.get("/account").json()["projects"] == []
    made = served.wired[AccountService].add_token("both", "narrow", 1, "Other")
    with program(served, made.token) as client:
        assert client.get("/account").json()["project"] == "Other"
    with program(served, made.token, **{"X-COFT-Project": "Default"}) as client:
        assert client.get("/account").status_code == 404


def test_agents_see_the_project_of_their_caller(served, walled):
    async def listed(**headers):
        url = f"{served.url}/gradio_api/mcp/"
        async with (
            streamablehttp_client(url, headers, timedelta(seconds=60)) as (reading, writing, _),
            ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            return str((await session.call_tool("list_sessions", {})).content)

    with ThreadPoolExecutor(1) as pool:
        inside = {"Authorization": f"Bearer {walled['both']}"}
        assert SECRET in pool.submit(lambda: asyncio.run(listed(**inside))).result()
        assert SECRET not in pool.submit(lambda: asyncio.run(listed(**inside, **{"X-COFT-Project": "Other"}))).result()
        outside = {"Authorization": f"Bearer {walled['outside']}"}
        assert SECRET not in pool.submit(lambda: asyncio.run(listed(**outside))).result()


def test_a_job_works_in_the_project_that_it_was_begun_in(served, walled):
    accounts, projects = served.wired[AccountService], served.wired[ProjectsRepository]
    account, other = accounts.named("both"), projects.named("Other")
    runner, seen = served.wired[JobService], []

    def work(_):
        seen.append(present_project())
        return {"sessions": [entry.name for entry in SessionsRepository(served.wired.database).list()]}

    with answering(Visitor(account.name, "", account, other)):
        record = runner.wait(runner.submit("test", "t", work), 30)
        assert record.status == "done", record.error
        assert record.result == {"sessions": []}
    assert seen == [other.id]
    with answering(Visitor(account.name, "", account, projects.get(DEFAULT))):
        assert record.id not in [job.id for job in runner.list()]


def test_a_browser_keeps_its_project_until_it_is_no_member_any_more(served, walled):
    accounts, projects = served.wired[AccountService], served.wired[ProjectService]
    account, secret = accounts.sign_in("both", PASSWORD, "")
    other = served.wired[ProjectsRepository].named("Other")
    origin = {"Origin": served.url}
    with httpx.Client(base_url=served.url, cookies={"coft-sign-in": secret}, headers=origin) as browser:
        form = browser.get("/account").json()["form"]
        assert browser.post("/account/project", data={"project": other.id, "form": "x"}).status_code == 403
        answer = browser.post("/account/project", data={"project": other.id, "form": form, "next": "review"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/review")
        assert browser.get("/account").json()["project"] == "Other"
        projects.remove_member("Other", account.name)
        assert browser.get("/account").json()["project"] == "Default"
        projects.add_member("Other", account.name)
        assert json.loads(browser.get("/account").text)["project"] == "Other"


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
