"""No other website reads or changes anything: by name (DNS rebinding), by origin, on any route, agents' included."""

import asyncio
import io
import json
import logging
import math
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, product
from urllib.parse import quote

import httpx
import pytest
from starlette.datastructures import Headers

from app.bootstrap import FEATURES, services
from app.server import build_app, launch_options
from app.serving.gate import ALWAYS_TLS, EVERYWHERE_FORBIDDEN, HEADERS, POLICY, Allowed, RequestGate
from app.serving.gradio_changes import SENTENCE
from app.settings import Settings
from app.shared.errors import ServiceError
from tests.conftest import free_port, load_tiny

ROUTES = (
    ("GET", "/"), ("GET", "/sessions"), ("GET", "/config"), ("GET", "/theme.css"), ("GET", "/gradio_api/info"),
    ("GET", "/gradio_api/file=/etc/passwd"), ("POST", "/gradio_api/call/list_sessions"),
    ("POST", "/gradio_api/queue/join"), ("POST", "/gradio_api/upload"), ("POST", "/gradio_api/mcp/"),
    ("OPTIONS", "/gradio_api/call/list_sessions"), ("GET", "/nothing-is-here"),
)  # fmt: skip
"""Pages, Gradio's own routes, files, endpoints, agents' tools, and what is not there."""


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[httpx.Client]:
    store = tmp_path_factory.mktemp("store") / "audits.sqlite3"
    settings = Settings(
        database_url=f"sqlite:///{store}", pipeline="none", hosts="audit.example.org, audit.example.net",
        origins="https://tools.example.org",
    )  # fmt: skip
    with services(settings, loader=load_tiny) as wired:
        app = build_app(wired)
        port = free_port()
        app.launch(
            prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", server_port=port,
            **launch_options(wired, mcp=True),
        )  # fmt: skip
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
        app.close(verbose=False)


def test_no_route_answers_to_a_name_that_is_not_listed(served):
    for method, route in ROUTES:
        answer = served.request(method, route, headers={"Host": "rebound.example.com"}, json={"data": []})
        assert (answer.status_code, "COFT_HOSTS" in answer.text) == (421, True), route


def test_no_route_answers_another_website_on_loopback_or_by_the_servers_own_name(served):
    origins = ("https://evil.example.com", "null", "http://127.0.0.1:1", "http://localhost:7860")
    hosts = (served.base_url.netloc.decode(), "audit.example.org")
    for (method, route), origin, host in product(ROUTES, origins, hosts):
        asking = {"Access-Control-Request-Method": "POST", "Origin": origin, "Host": host}
        answer = served.request(method, route, headers=asking, json={"data": []})
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False), (route, asking)


LARGE = 22_000_000


def test_a_body_that_says_it_is_too_large_is_refused_before_any_of_it_is_read(served):
    said = f"HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGE}\r\nContent-Type: text/plain\r\n\r\n"
    for route in ("/gradio_api/upload", "/gradio_api/call/list_sessions", "/gradio_api/queue/join"):
        with socket.create_connection((served.base_url.host, served.base_url.port)) as line:
            line.sendall(f"POST {route} {said}".encode())
            assert line.recv(65536).decode().startswith("HTTP/1.1 413"), route


async def behind_the_gate(pieces: list[bytes], scheme: str = "http", host: str = "localhost"):
    """How many bytes of a body an application behind the gate has read, the status, and the headers of the answer."""
    read, answers, waiting = 0, [], list(pieces)

    async def application(scope, receive, send):
        nonlocal read
        more = True
        while more:
            message = await receive()
            read += len(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive():
        piece = waiting.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(waiting)}

    async def send(message):
        answers.extend([message] if "status" in message else [])

    scope = {"type": "http", "method": "POST", "path": "/", "scheme": scheme, "headers": [(b"host", host.encode())]}
    allowed = Allowed.by(Settings(hosts="audit.example.org"))
    await RequestGate(application, allowed, largest_body=100)(scope, receive, send)
    (answer,) = answers
    return read, answer["status"], Headers(raw=answer["headers"])


def gated(*given: object):
    # In a thread of its own: a driver of browsers may keep a loop running in this one.
    with ThreadPoolExecutor(1) as own:
        return own.submit(asyncio.run, behind_the_gate(*given)).result()


def test_a_body_without_a_length_is_cut_off_at_the_limit():
    assert [gated([b"x" * 40] * pieces)[:2] for pieces in (2, 50)] == [(80, 200), (80, 413)]


def test_its_own_pages_and_programs_without_an_origin_are_answered(served):
    own = served.base_url.netloc.decode()
    for headers in (
        {},
        {"Origin": f"http://{own}"},
        {"Host": "audit.example.org", "Origin": "https://audit.example.org"},
    ):
        begun = served.post("/gradio_api/call/list_sessions", json={"data": []}, headers=headers)
        assert begun.status_code == 200, begun.text
        assert served.get("/", headers=headers).status_code == 200


def test_a_listed_website_is_answered_so_that_its_scripts_can_read_it(served):
    headers = {"Origin": "https://tools.example.org"}
    for answer in (
        served.get("/gradio_api/info", headers=headers),
        served.options("/gradio_api/call/step", headers={**headers, "Access-Control-Request-Method": "POST"}),
    ):
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://tools.example.org"


def test_every_answer_carries_the_protecting_headers_and_says_its_type(served):
    hosts = ("127.0.0.1:7860", "audit.example.org", "rebound.example.com")
    for (method, route), host in product(ROUTES, hosts):
        answer = served.request(method, route, headers={"Host": host}, json={"data": []})
        kind = answer.headers["content-type"]
        assert "charset=utf-8" in kind.lower() or not kind.startswith("text/"), route
        if kind.startswith("application/json"):
            answer.json()
        told = {name: answer.headers.get(name, "") for name in HEADERS}
        policy = told.pop(POLICY)
        assert told == {name: value for name, value in HEADERS.items() if name != POLICY}, (route, host)
        assert policy.startswith(f"{EVERYWHERE_FORBIDDEN}; script-src 'self'"), (route, host)
        if kind.startswith("text/html") and answer.status_code == 200:
            # A page's scripts are the server's own files, and those that carry the nonce of this answer.
            nonce = re.search(r"script-src 'self' 'unsafe-eval' 'nonce-([^']+)'", policy)[1]
            scripts = re.findall(r"<script\b[^>]*>", re.sub(r"(?s)(<script\b[^>]*>).*?</script>", r"\1", answer.text))
            assert scripts
            assert "<base" not in answer.text
            assert all(f'nonce="{nonce}"' in script for script in scripts)


def _problem(settings: Settings, *headers: tuple[str, str]) -> tuple[int, str] | None:
    return Allowed.by(settings).problem(Headers(raw=[(name.encode(), value.encode()) for name, value in headers]))


def test_loopback_is_always_answered_to_and_a_malformed_host_never():
    for host in ("localhost", "LOCALHOST:7860", "127.0.0.1:80", "[::1]:7860", "localhost."):
        assert _problem(Settings(host="0.0.0.0"), ("host", host)) is None, host
    for host in ("", "a@localhost", "localhost/x", "localhost:x", "localhost:99999", "[::1", "localhost#"):
        assert _problem(Settings(), ("host", host)) is not None, host
    assert _problem(Settings()) is not None
    # The address that it listens on is a name too; every address is none.
    assert _problem(Settings(host="192.0.2.7"), ("host", "192.0.2.7:7860")) is None
    assert _problem(Settings(host="0.0.0.0"), ("host", "0.0.0.0:7860")) is not None
    assert _problem(Settings(), ("host", "localhost"), ("host", "localhost")) is not None


def test_a_name_that_a_proxy_passes_on_has_to_be_the_servers():
    settings = Settings(hosts="audit.example.org", origins="https://tools.example.org:8443")
    for forwarded, status in (
        ("audit.example.org", None), ("tools.example.org:8443, localhost", None), ("evil.example.com", 421),
        ("audit.example.org, evil.example.com", 421), ("", 421),
    ):  # fmt: skip
        problem = _problem(settings, ("host", "localhost"), ("x-forwarded-host", forwarded))
        assert (None if problem is None else problem[0]) == status, forwarded


def test_an_origin_is_its_own_by_name_and_port():
    for origin, host, allowed in (
        ("http://localhost:7860", "localhost:7860", True), ("http://localhost", "localhost:80", True),
        ("https://localhost", "localhost", True), ("http://localhost:7861", "localhost:7860", False),
        ("http://localhost", "localhost:7860", False), ("ftp://localhost", "localhost", False),
        ("http://localhost.evil.example", "localhost", False), ("http://evil@localhost", "localhost", False),
        ("http:localhost", "localhost", False), ("", "localhost", False),
    ):  # fmt: skip
        assert (_problem(Settings(), ("host", host), ("origin", origin)) is None) == allowed, origin


def test_a_setting_that_names_no_host_or_origin_is_refused():
    for name, value in (
        ("hosts", "*"), ("hosts", "http://a"), ("hosts", "a:80"), ("origins", "a"), ("origins", "https://*.a"),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match=f"COFT_{name.upper()}"):
            Allowed.by(Settings(**{name: value}))


def test_an_uploaded_page_comes_back_as_a_file_to_save_under_a_harmless_name(served):
    name = 'a"; filename=../../b\r\nX-Evil: 1.html'
    answer = served.post("/gradio_api/upload", files={"files": (name, b"<script>alert(1)</script>", "text/html")})
    (path,) = answer.json()
    assert ".." not in path
    given = served.get(f"/gradio_api/file={quote(path)}")
    assert given.content == b"<script>alert(1)</script>"
    told = given.headers["content-disposition"]
    assert told.startswith("attachment; filename")
    assert told.count("filename") == told.count("filename=") + told.count("filename*=") == 1
    assert "x-evil" not in given.headers
    assert given.headers["x-content-type-options"] == "nosniff"


def test_no_folder_is_listed_and_trace_is_not_answered(served):
    for folder in ("/static/", "/assets/", "/gradio_api/file=/", "/gradio_api/file=/tmp", "/own/", "/svelte/"):
        assert served.get(folder).status_code in (400, 403, 404), folder
    for route in ("/", "/gradio_api/upload", "/health"):
        assert served.request("TRACE", route, headers={"X-Secret": "mine"}).status_code == 405


def test_a_request_that_gives_its_length_in_two_ways_is_one_request_or_none(served):
    with socket.create_connection((served.base_url.host, served.base_url.port)) as line:
        inner = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        head = (
            "POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Length: {len(inner) + 5}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        line.sendall((head + inner).encode())
        answer = b"".join(iter(lambda: line.recv(65536), b"")).decode()
    assert answer.count("HTTP/1.1 ") == 1
    assert answer.startswith("HTTP/1.1 4")


def test_pages_name_no_other_host_and_send_nothing_to_gradio(served):
    page = served.get("/").text
    fetched = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(https?:)?//", page)
    assert fetched == []
    assert '"analytics_enabled":false' in page.replace(" ", "")


def test_over_tls_a_browser_is_told_to_ask_by_nothing_else():
    asked = [("https", "audit.example.org"), ("http", "audit.example.org"), ("https", "localhost:7860")]
    told = [gated([b""], *one)[2] for one in asked]
    assert [one.get("strict-transport-security") for one in told] == [ALWAYS_TLS, None, None]
    assert int(re.search(r"max-age=(\d+); includeSubDomains", ALWAYS_TLS)[1]) >= 365 * 24 * 3600


def test_nothing_is_fetched_from_an_address_that_a_visitor_gives(served, monkeypatch):
    asked: list[str] = []

    async def fetched(url: str, **_: object) -> str:
        asked.append(url)
        return __file__

    monkeypatch.setattr("gradio.processing_utils.async_ssrf_protected_download", fetched)
    monkeypatch.setattr("gradio.processing_utils.save_url_to_cache", lambda url, **_: asked.append(url) or __file__)
    for address in ("http://192.0.2.1/a.csv", "HTTPS://192.0.2.1/a.csv", "//192.0.2.1/a.csv"):
        for route in (f"file={address}", f"proxy={address}", f"file={quote(address)}"):
            answer = served.get(f"/gradio_api/{route}")
            assert (answer.status_code, answer.text) == (403, SENTENCE), route
        for given in (
            {"path": address, "meta": {"_type": "gradio.FileData"}},
            {"path": address, "url": address, "meta": {"_type": "gradio.FileData"}},
            {"path": address},
            {"path": "/etc/passwd"},
            {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}},
        ):
            told = list_added(served, given)
            assert "event: error" in told, given
            assert "root" not in told
            if str(given["path"]).startswith("http:") and "meta" in given:
                assert SENTENCE in told
    assert asked == []


def list_added(served: httpx.Client, given: dict[str, object]) -> str:
    """What is answered to a word list from a file."""
    begun = served.post("/gradio_api/call/add_user_list", json={"data": [given, None]})
    return served.get(f"/gradio_api/call/add_user_list/{begun.json()['event_id']}").text


def test_a_file_that_was_sent_is_taken(served):
    (path,) = served.post("/gradio_api/upload", files={"files": ("ward.txt", b"nurse\nrounds\n")}).json()
    assert "event: complete" in list_added(served, {"path": path, "meta": {"_type": "gradio.FileData"}})


MARKER = "Zanzibar"
"""Stands for what somebody typed."""
BODIES = (
    "1e400", "NaN", "[]", "{}", "{", f'"{MARKER}"', f'{{"{MARKER}": 1}}', f'{{"data": ["{MARKER}"]}}',
    '{"session_hash": 1e400, "event_id": 1e400, "fn_index": 1e400, "data": 1e400}',
    f'{{"session_hash": "{MARKER}", "fn_index": "{MARKER}", "data": ["{MARKER}"]}}',
    f'{{"session_hash": "{MARKER}", "event_id": "{MARKER}", "fn_index": 99999, "data": ["{MARKER}"]}}',
)  # fmt: skip


@pytest.fixture
def log(capsys) -> Iterator[Callable[[], str]]:
    """What the server has written to its log, and printed, since this was last asked."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    loggers = [logging.getLogger(name) for name in ("", "uvicorn")]

    def read() -> str:
        text = written.getvalue() + "".join(capsys.readouterr())
        written.seek(0)
        written.truncate()
        return text

    for logger in loggers:
        logger.addHandler(handler)
    yield read
    for logger in loggers:
        logger.removeHandler(handler)


def require_sentences(served: httpx.Client, log: Callable[[], str], asked: list[tuple[str, dict[str, object]]]) -> None:
    """Ask for events: each that fails does so with a sentence, and nothing that was sent is in the log."""
    waiting = iter(asked)
    # As many as may wait of one visitor at a time.
    while some := list(islice(waiting, 12)):
        log()
        for route, body in some:
            # JSON as others write it, who know NaN.
            begun = posted(served, route, json.dumps({**body, "session_hash": "page"}))
            assert begun.status_code == 200, (route, body, begun.text)
        stream = served.get("/gradio_api/queue/data", params={"session_hash": "page"}).text
        messages = [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line]
        ended = [message for message in messages if message["msg"] == "process_completed"]
        assert len(ended) == len(some)
        assert all(message["success"] or message["output"]["error"] for message in ended), ended
        written = log()
        assert not any(word in written for word in ("Traceback", MARKER)), (some, written)


def posted(served: httpx.Client, route: str, body: str) -> httpx.Response:
    return served.post(f"/gradio_api/{route}", content=body, headers={"Content-Type": "application/json"})


def test_a_request_that_cannot_be_read_is_refused_in_a_sentence_and_stays_out_of_the_log(served, log):
    routes = ("reset", "cancel", "queue/join", "call/nothing", "call/step", "call/v2/nothing", "run/step")
    asked = [*product(routes, BODIES)]
    for name in served.get("/gradio_api/info").json()["named_endpoints"]:
        asked += [(f"call/v2{name}", body) for body in (BODIES[0], f'{{"{MARKER}": "{MARKER}"}}')]
    log()
    for route, body in asked:
        answer = posted(served, route, body)
        if answer.status_code != 200:
            assert answer.status_code < 500, (route, body)
            assert isinstance(answer.json()["detail"], str), (route, body)
            assert answer.json()["detail"].strip(), (route, body)
    written = log()
    assert not any(word in written for word in ("Traceback", MARKER)), written


EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
"""All ways in are answered by the same code: one in three shows it, and at night each one."""


@EVERY
def test_arguments_that_cannot_be_read_are_answered_in_a_sentence_and_stay_out_of_the_log(served, log, every):
    asked: list[tuple[str, dict[str, object]]] = []
    wrong = [MARKER, math.nan, {"path": f"/etc/{MARKER}", "meta": {"_type": "gradio.FileData"}}]
    for turn, (name, endpoint) in enumerate(served.get("/gradio_api/info").json()["named_endpoints"].items()):
        places = range(len(endpoint["parameters"]))
        for data in ([], [wrong[(place + turn) % len(wrong)] for place in places]):
            asked.append((f"call{name}", {"data": data}))
    assert len(asked) > 120
    require_sentences(served, log, asked[::every])


@EVERY
def test_an_event_of_a_page_that_cannot_be_read_is_answered_in_a_sentence_and_stays_out_of_the_log(served, log, every):
    pages = [feature.page.path for feature in FEATURES if feature.page and not feature.page.for_admins]
    events = {
        event["id"]: event
        for page in pages[::every]
        for event in served.get("/config", params={"page": page}).json()["dependencies"]
        if event["backend_fn"] and event["api_visibility"] != "public"
    }
    assert len(events) > 150 / every / 2
    asked: list[tuple[str, dict[str, object]]] = []
    for number, event in events.items():
        about = {"fn_index": number, "event_data": {MARKER: MARKER}, "trigger_id": event["targets"][0][0]}
        # Every second one is sent too little.
        asked.append(("queue/join", {**about, "data": [MARKER] * (len(event["inputs"]) if number % 2 else 0)}))
    require_sentences(served, log, asked)
