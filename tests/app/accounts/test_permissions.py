"""Every endpoint, route, page and event: 401 for nobody, 403 beyond the role, and a row in the one table for each."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

from app.accounts.events import need_of
from app.accounts.forms import COOKIE
from app.accounts.gate import AccountGate
from app.accounts.permissions import PAGES, RouteTable
from app.accounts.service import AccountService
from app.bootstrap import FEATURES
from app.shared.needs import Need
from db.accounts import ROLES
from db.trail import TrailRepository
from db.types import utc_now

TABLE = RouteTable()


def routes_of(app):
    """Path and method of everything that the web application answers, whatever it is nested in."""
    for route in app.routes:
        nested = getattr(route, "original_router", None)
        if nested is not None:
            yield from routes_of(nested)
        elif hasattr(route, "routes") and not hasattr(route, "methods"):
            yield route.path, "POST"
        else:
            yield from ((route.path, method) for method in sorted(route.methods or ()))


def address(path):
    """An address that a route's pattern fits."""
    return re.sub(r"\{[^}]*\}", "x", path)


def required(need):
    return len(ROLES) if need.role is None else ROLES.index(need.role)


def ask(client, method, path, body=None):
    """Status of an answer; a stream is left at its beginning."""
    sent = {} if method in ("GET", "HEAD") else {"json": {"data": []} if body is None else body}
    with client.stream(method, path, **sent) as answer:
        return answer.status_code


def test_every_route_and_page_has_a_row(served):
    pages = {f"/{path}" for path in PAGES}
    patterns = [pattern for pattern, _ in TABLE._rows]
    missing = {
        path
        for path, _ in routes_of(served.blocks.app)
        if (path.rstrip("/") or "/") not in pages
        and not any(pattern.match(address(path).rstrip("/")) for pattern in patterns)
    }
    assert missing == set()
    assert set(PAGES) == {feature.page.path for feature in FEATURES if feature.page}


def test_nobody_gets_anything_but_the_page_to_sign_in_on(served):
    with served.client() as nobody:
        for path, method in sorted(set(routes_of(served.blocks.app))):
            rule = TABLE.rule(address(path))
            if rule != "open":
                assert ask(nobody, method, address(path)) == 401, (method, path)


def test_a_route_that_takes_more_than_a_role_is_refused_and_nobody_gets_what_the_program_does_not_offer(served):
    for role in ROLES:
        refused = {
            (method, address(path))
            for path, method in routes_of(served.blocks.app)
            if isinstance(rule := TABLE.rule(address(path)), Need) and ROLES.index(role) < required(rule)
        }
        assert refused
        with served.client(role) as client:
            for method, path in sorted(refused):
                assert ask(client, method, path) == 403, (role, method, path)


def test_every_event_and_operation_is_refused_beyond_the_role_by_number_and_by_name(served):
    gate = served.wired[AccountGate]
    tried = set()
    for number, function in served.blocks.fns.items():
        _, need = need_of(function)
        named = [f"/gradio_api/{path}/{function.api_name}" for path in ("run", "api", "call", "call/v2")]
        for path in ("/gradio_api/queue/join", *(named if function.api_visibility == "public" else ())):
            given = {"fn_index": number} if path.endswith("join") else {}
            assert (need_of(function)[0], need) in gate._events(path, given), (path, function.api_name)
            # What the gate finds is what it refuses by: once for each role and kind of address.
            kind = (need, path.removesuffix(str(function.api_name)))
            if required(need) and kind not in tried:
                tried.add(kind)
                with served.client(ROLES[required(need) - 1]) as client:
                    assert ask(client, "POST", path, {"data": [], "session_hash": "s", **given}) == 403, path
    assert len(tried) > 10


def test_an_event_that_is_no_number_or_another_than_its_name_is_refused(served):
    with served.client("admin") as client:
        for number in ("x", -1, 10**6, [1], {}):
            body = {"data": [], "fn_index": number, "session_hash": "s"}
            assert ask(client, "POST", "/gradio_api/queue/join", body) == 403, number
        assert ask(client, "POST", "/gradio_api/queue/join", {"data": []}) == 403
    number = next(key for key, fn in served.blocks.fns.items() if fn.api_name == "export_trail")
    with served.client("viewer") as client:
        body = {"data": [], "fn_index": str(number), "session_hash": "s"}
        assert ask(client, "POST", "/gradio_api/run/list_sessions", body) == 403


def called(client, name, *data):
    """What an operation answers, as the stream tells it."""
    begun = client.post(f"/gradio_api/call/{name}", json={"data": list(data)})
    assert begun.status_code == 200, begun.text
    return client.get(f"/gradio_api/call/{name}/{begun.json()['event_id']}").text


def test_a_role_may_do_what_its_row_says_and_the_trail_takes_down_who_did_it(served):
    with served.client("viewer") as viewer, served.client("admin") as admin:
        assert "event: complete" in called(viewer, "list_sessions", "")
        assert "event: complete" in called(admin, "list_accounts")
    trail = served.wired[TrailRepository].list()
    assert [(entry.actor, entry.outcome) for entry in trail if entry.action == "list_accounts"][-1] == (
        "the admin", "done"
    )  # fmt: skip
    assert not [entry for entry in trail if entry.action == "list_sessions"]


def test_behind_the_gate_stands_a_second_door(served):
    """A function that is reached by another way than a request asks again."""
    function = next(fn for fn in served.blocks.fns.values() if fn.api_name == "list_accounts")
    with pytest.raises(Exception, match="Sign in again"):
        function.fn()


def test_an_agents_tools_are_the_operations_of_its_account(served):
    async def talk(role, tool):
        headers = {"Authorization": f"Bearer {served.tokens[role]}"}
        url = f"{served.url}/gradio_api/mcp/"
        async with (
            streamablehttp_client(url, headers, timedelta(seconds=60)) as (reading, writing, _),
            ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            answer = await session.call_tool(tool, {})
            return bool(answer.isError), str(answer.content)

    # In a thread of its own: where browser tests ran before, this one has a running loop.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, talk("viewer", "list_sessions")).result()[0] is False
        failed, said = pool.submit(asyncio.run, talk("admin", "list_accounts")).result()
    assert not failed
    assert "the viewer" in said
    refused = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_accounts", "arguments": {}}}
    with served.client("viewer") as viewer:
        answer = viewer.post("/gradio_api/mcp/", json=refused)
        assert answer.status_code == 403
        assert "admin" in answer.json()["detail"]


def test_completions_refuse_in_the_shape_of_their_interface(served):
    asked = {"model": "tiny", "prompt": "A", "max_tokens": 1}
    with served.client() as nobody, served.client("viewer") as viewer:
        assert nobody.post("/v1/completions", json=asked).json()["error"]["type"] == "authentication_error"
        assert viewer.post("/v1/completions", json=asked).json()["error"]["type"] == "permission_error"
        assert viewer.get("/v1/models").status_code == 200


def test_what_changes_something_is_asked_for_by_post_alone(served):
    changing = {"/sign-out", "/account/project", "/jobs/seen", "/jobs/dismissed", "/gradio_api/upload"}
    methods: dict[str, set[str]] = {}
    for path, method in routes_of(served.blocks.app):
        if path in changing or TABLE.rule(address(path)) == "event" or path.startswith("/v1/c"):
            methods.setdefault(path, set()).add(method)
    assert changing < set(methods)
    assert set().union(*methods.values()) == {"POST"}


def test_a_token_that_lets_nobody_in_and_what_is_refused_are_in_the_trail(served):
    with httpx.Client(base_url=served.url, headers={"Authorization": "Bearer coft_made-up"}) as stranger:
        assert ask(stranger, "GET", "/config") == 401
    told = [(entry.action, entry.outcome, entry.address) for entry in served.wired[TrailRepository].list()]
    assert ("show a token", "refused", "127.0.0.1") in told
    with served.client("viewer") as viewer:
        assert ask(viewer, "POST", "/gradio_api/call/export_trail") == 403
    last = served.wired[TrailRepository].list()[-1]
    assert (last.actor, last.action, last.outcome) == ("the viewer", "export_trail", "refused")
    assert last.address == "127.0.0.1"


def test_who_opens_her_own_account_signs_in_first_and_no_token_in_an_address_lets_anybody_in(served):
    with served.client() as nobody:
        answer = nobody.get("/account/sign-ins", headers={"Accept": "text/html"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=account/sign-ins")
        assert 'name="next" value="account/sign-ins"' in nobody.get(answer.headers["location"]).text
    with served.client() as nobody:
        for name in ("token", "access_token", "authorization", "coft-sign-in"):
            assert ask(nobody, "GET", f"/config?{name}={served.tokens['admin']}") == 401


def test_what_a_page_asks_for_by_itself_keeps_nobody_signed_in(served, monkeypatch):
    accounts = served.wired[AccountService]
    account = accounts.named("the viewer")
    secret = accounts.begin(account, "10.0.0.1")
    monkeypatch.setattr("app.accounts.service.utc_now", lambda: utc_now() + timedelta(minutes=5))
    with served.client() as browser:
        browser.cookies.set(COOKIE, secret)
        assert browser.get("/jobs").status_code == 200
        assert accounts.held(secret).used_at is None
        assert browser.get("/account").status_code == 200
        assert accounts.held(secret).used_at > utc_now()
    accounts.sign_out(secret)


def test_no_browser_keeps_what_an_account_is_shown(served):
    with served.client("admin") as admin:
        for path in ("/", "/config", "/sessions", "/jobs", "/gradio_api/info", "/account", "/metrics"):
            assert "no-store" in admin.get(path).headers["cache-control"], path
    with served.client() as nobody:
        page = served.client("viewer").get("/").text
        (files,) = set(re.findall(r"/own/\w+/", page))
        assert "no-store" not in nobody.get(f"{files}base/core.js").headers["cache-control"]
