"""The chain that a page's address names is told before Gradio has built the page, as the page's event tells it."""

import json

import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app.audit.handlers import AuditHandlers, FirstChain
from app.audit.service import AuditService
from app.shared.audits import AuditSettings, StartAudit
from coft_core.types import Span


@pytest.fixture
def forked(wired):
    """A session with a chain of three steps and a fork of it: session, chain, fork."""
    settings = AuditSettings(model="tiny", max_new_tokens=6, top_p=1.0, seed=11, lam=0.3)
    view = wired[AuditService].start(StartAudit("The nurse said he came", settings, (Span(15, 17, "gender"),)))
    for _ in range(3):
        wired[AuditService].step(view.session_id)
    fork = wired[AuditService].fork(view.session_id, view.branch_id, 1, "x")
    return view.session_id, view.branch_id, fork.branch_id


@pytest.fixture
def client(wired):
    return TestClient(Starlette(routes=wired[FirstChain].routes))


def test_the_route_tells_of_a_session_and_its_branches_what_the_event_tells(wired, client, forked):
    session, chain, fork = forked
    for query, branch in ((f"session={session}", None), (f"session={session}&branch={chain}", chain)):
        told = client.get(f"/audit/chain?{query}").json()
        asked = dict.fromkeys(("duplicate", "calibration", "policy", "values"))
        event = gr.EventData(None, {**asked, "session": session, "branch": branch, "nonce": 1})
        message, *controls = AuditHandlers(wired).open(event)
        opened = json.loads(message)
        assert told == {name: value for name, value in opened.items() if name not in ("nonce", "at")}
        assert told["branch"] == (fork if branch is None else chain)
        settled = AuditHandlers(wired).settle(gr.EventData(None, {"session": session, "nonce": 2}))
        assert [_value(control) for control in settled] == [_value(control) for control in controls]


def test_the_route_leaves_it_to_the_page_to_say_what_is_not_there(client, forked):
    for query in ("", "session=99", "session=x", "session=1&branch=99", f"session={'9' * 30}"):
        assert client.get(f"/audit/chain?{query}").status_code == 404


def _value(control):
    return control.get_config() if isinstance(control, gr.components.Component) else control
