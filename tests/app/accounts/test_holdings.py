"""What Gradio keeps for one account is given to no other one, and not in another project."""

import json
import re
from secrets import token_hex
from urllib.parse import parse_qs

import httpx
import pytest

from app.accounts.holdings import name_upload
from app.accounts.projects import ProjectService
from app.accounts.service import AccountService
from app.shared.visitors import Visitor
from tests.app.accounts.conftest import PASSWORD


@pytest.fixture(scope="module")
def anna_and_ben(served):
    """Tokens of two leads: Anna sees two projects, and Ben the second of them."""
    accounts, projects = served.wired[AccountService], served.wired[ProjectService]
    for project in ("Hers", "Both"):
        projects.add(project)
    for name, seen in {"Anna": ("Hers", "Both"), "Ben": ("Both",)}.items():
        accounts.add(name, "lead", PASSWORD, project="")
        for project in seen:
            projects.add_member(project, name)
    return {name: accounts.add_token(name, "tests", 1).token for name in ("Anna", "Ben")}


def given(path):
    """An uploaded file as an argument."""
    return {"path": path, "meta": {"_type": "gradio.FileData"}}


@pytest.fixture
def asking(served, anna_and_ben):
    def client(name, project):
        headers = {"Authorization": f"Bearer {anna_and_ben[name]}", "X-COFT-Project": project}
        return httpx.Client(base_url=served.url, timeout=60, headers=headers)

    return client


def begun(client, name, *data, **more):
    return client.post(f"/gradio_api/call/{name}", json={"data": list(data), **more})


def ended(client, operation, *data):
    """How an operation ends, and with what."""
    event = begun(client, operation, *data).json()["event_id"]
    stream = client.get(f"/gradio_api/call/{operation}/{event}").text
    how, told = re.findall(r"event: (complete|error)\ndata: (.*)", stream)[-1]
    return how, json.loads(told)


def test_files_are_given_to_the_accounts_that_brought_or_made_them_in_their_project(asking):
    with asking("Anna", "Hers") as anna, asking("Anna", "Both") as elsewhere, asking("Ben", "Both") as ben:
        content = f"term,family,action\n{token_hex(8)},race,mask\n"
        (uploaded,) = anna.post("/gradio_api/upload", files={"files": ("list.csv", content)}).json()
        session = ended(anna, "start_audit", "He said", [], {"model": "tiny"}, None)[1][0]["session_id"]
        exported = ended(anna, "export_csv", session)[1][0]["path"]
        folder, _, name = uploaded.rpartition("/")
        for other in (elsewhere, ben):
            for path in (
                f"file={uploaded}", f"file/{uploaded}", f"file={folder}/../{folder}/{name}", f"file={exported}",
            ):  # fmt: skip
                assert other.get(f"/gradio_api/{path}").status_code == 404, path
            assert ended(other, "add_user_list", given(uploaded), {"name": token_hex(8)})[0] == "error"
        assert anna.get(f"/gradio_api/file={uploaded}").text == content
        assert anna.get(f"/gradio_api/file={exported}").text.startswith("session_id")
        assert ended(anna, "add_user_list", given(uploaded), {"name": token_hex(8)})[0] == "complete"
        # Who uploads the same content holds it too.
        assert ben.post("/gradio_api/upload", files={"files": ("list.csv", content)}).json() == [uploaded]
        assert ben.get(f"/gradio_api/file={uploaded}").text == content
        assert elsewhere.get(f"/gradio_api/file={uploaded}").status_code == 404


def test_answers_and_streams_are_given_to_the_account_that_asked_in_its_project(asking, served):
    with asking("Anna", "Hers") as anna, asking("Anna", "Both") as elsewhere, asking("Ben", "Both") as ben:
        page = token_hex(8)
        event = begun(anna, "policies").json()["event_id"]
        on_page = begun(anna, "policies", session_hash=page).json()["event_id"]
        for other in (elsewhere, ben):
            for path in (
                f"call/policies/{event}", f"call/v2/policies/{event}", f"call/policies/{on_page}",
                f"queue/data?session_hash={event}", f"queue/data?session_hash={page}", f"heartbeat/{page}",
            ):  # fmt: skip
                assert other.get(f"/gradio_api/{path}").status_code == 404, path
            for body in ({"session_hash": page, "event_id": "x"}, {"session_hash": "x", "event_id": event}):
                assert other.post("/gradio_api/cancel", json={**body, "fn_index": 0}).status_code == 404
            assert begun(other, "policies", session_hash=page).status_code == 404
        for waiting in (event, on_page):
            assert "event: complete" in anna.get(f"/gradio_api/call/policies/{waiting}").text
    assert served.blocks._queue.event_analytics == {}


def test_uploads_that_two_accounts_name_alike_are_told_apart(served, anna_and_ben):
    asked = []
    for name in anna_and_ben:
        scope = {"query_string": b"upload_id=1&more=2"}
        name_upload(scope, Visitor(name, account=served.wired[AccountService].named(name)))
        asked.append(parse_qs(scope["query_string"].decode()))
    assert asked[0]["upload_id"] != asked[1]["upload_id"]
    assert [query["more"] for query in asked] == [["2"], ["2"]]
