"""Signing in by OpenID: a real provider on this computer, and everything that may be wrong with what it says."""

import base64
import hashlib
import json
import ssl
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app.accounts.attempts import SignInError
from app.accounts.forms import COOKIE, form_token
from app.accounts.projects import ProjectService
from app.accounts.provider import Begun, Provider
from app.accounts.sign_in import PROVIDER_COOKIE, SignInPages
from app.settings import Settings
from app.shared.errors import ServiceError
from tests.app.accounts.conftest import PASSWORD, quick_accounts

KEY, STRANGER = RSAKey.generate_key(2048), RSAKey.generate_key(2048)
CLIENT, SECRET = "coft-audit", "the client's secret"
SITE = "http://audit.example.org"


@dataclass
class OpenIdProvider:
    """Hands out codes for one person, and tokens for codes; a test may change what the token says."""

    claims: dict[str, Any] = field(default_factory=dict)
    key: Any = field(default_factory=lambda: KEY)
    algorithm: str = "RS256"
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    url: str = ""
    ending: str = ""
    """Where it signs people out, below its own address or elsewhere; empty where it declares nothing."""
    moved: str = ""
    """Where it sends those who ask what it is; empty where it answers them."""

    def described(self):
        paths = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
        ending = self.ending if "://" in self.ending else self.url + self.ending
        told = {"end_session_endpoint": ending} if self.ending else {}
        return {"issuer": self.url, **{name: self.url + path for name, path in paths.items()}, **told}

    def consent(self, address):
        """What the person's browser is sent back to once she agreed."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert asked["client_id"] == CLIENT
        assert "openid" in asked["scope"].split()
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?code={code}&state={asked['state']}"

    def exchanged(self, given, authorization):
        asked = self.codes.pop(given.get("code", ""), None)
        verifier = given.get("code_verifier", "").encode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier).digest()).rstrip(b"=").decode()
        client = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if asked is None or challenge != asked["code_challenge"] or authorization != f"Basic {client}":
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.url, "sub": "1234", "aud": CLIENT, "iat": now, "exp": now + 60, "nonce": asked["nonce"],
            "preferred_username": "Mia", "groups": ["auditors"], **self.claims,
        }  # fmt: skip
        signed = jwt.encode({"alg": self.algorithm, "kid": "1"}, claims, self.key, algorithms=[self.algorithm])
        return 200, {"access_token": "a", "token_type": "Bearer", "id_token": signed}


@pytest.fixture(scope="module")
def provider_server():
    provider = OpenIdProvider()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            keys = {"keys": [{**KEY.as_dict(private=False), "kid": "1"}]}
            if provider.moved and "moved" not in self.path:
                self.say(307, {}, provider.moved + self.path)
                return
            self.say(200, provider.described() if "openid-configuration" in self.path else keys)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            given = {name: values[0] for name, values in parse_qs(body).items()}
            self.say(*provider.exchanged(given, self.headers.get("authorization", "")))

        def say(self, status, told, location=""):
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            if location:
                self.send_header("location", location)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield provider
    server.shutdown()
    server.server_close()


@pytest.fixture
def provider(provider_server):
    provider_server.claims, provider_server.key, provider_server.algorithm = {}, KEY, "RS256"
    provider_server.ending = provider_server.moved = ""
    return provider_server


@pytest.fixture
def accounts(wired):
    return quick_accounts(wired)


@pytest.fixture
def browser(provider, accounts, wired):
    settings = Settings(
        oidc_issuer=provider.url, oidc_client_id=CLIENT, oidc_client_secret=SECRET, oidc_label="Example",
        oidc_roles="auditors=reviewer,audit-leads=lead",
    )  # fmt: skip
    pages = SignInPages(accounts, ProjectService(wired), settings, Provider(settings))
    return TestClient(Starlette(routes=pages.routes), base_url=SITE, follow_redirects=False)


def signed_in(browser, provider, following=""):
    sent = browser.get("/sign-in/begin", params={"next": following})
    assert sent.status_code == 303, sent.text
    return browser.get(provider.consent(sent.headers["location"]))


def test_the_provider_signs_in_whom_it_knows_into_the_set_project_and_her_role_follows_it(browser, provider, accounts):
    assert "Sign in with Example" in browser.get("/sign-in").text
    answer = signed_in(browser, provider, "review?session=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/review?session=1")
    account = accounts.by_cookie(browser.cookies[COOKIE])
    assert (account.name, account.role, account.issuer) == ("Mia", "reviewer", provider.url)
    provider.claims = {"groups": ["auditors", "audit-leads"], "preferred_username": "Mia M."}
    assert signed_in(browser, provider).status_code == 303
    assert [(one.name, one.role) for one in accounts.list()] == [("Mia", "lead")]
    signed_in(browser, provider)
    assert [project.name for project in accounts._projects.of_account(accounts.named("Mia").id)] == ["Default"]


def test_a_token_that_does_not_fit_or_that_another_key_signed_signs_nobody_in(browser, provider, accounts):
    for claims in (
        {"nonce": "another"}, {"aud": "another client"}, {"aud": [CLIENT, "another"], "azp": "another"},
        {"iss": "https://another.example"}, {"exp": int(time.time()) - 3600}, {"iat": int(time.time()) + 3600},
        {"groups": ["others"]}, {"groups": None}, {"preferred_username": "<b>"},
    ):  # fmt: skip
        provider.claims = claims
        assert signed_in(browser, provider).status_code == 401, claims
        assert COOKIE not in browser.cookies, claims
        assert accounts.list() == [], claims
    provider.claims = {}
    for key, algorithm in ((STRANGER, "RS256"), (OctKey.import_key(SECRET.encode() * 2), "HS256")):
        provider.key, provider.algorithm = key, algorithm
        assert signed_in(browser, provider).status_code == 401
    assert accounts.list() == []


def test_an_answer_that_this_browser_did_not_ask_for_is_refused(browser, provider, accounts):
    back = provider.consent(browser.get("/sign-in/begin").headers["location"])
    forged = back.rpartition("&state=")[0] + "&state=forged"
    assert "not begun in this browser" in browser.get(forged).text
    other = TestClient(browser.app, base_url=SITE, follow_redirects=False)
    assert other.get(back).status_code == 401
    other.get("/sign-in/begin")
    assert other.get(back).status_code == 401
    assert accounts.list() == []


def test_a_code_is_worth_nothing_without_the_verifier_and_a_second_time(browser, provider, accounts):
    sent = browser.get("/sign-in/begin")
    kept = browser.cookies[PROVIDER_COOKIE]
    back = provider.consent(sent.headers["location"])
    state, nonce, _, following = json.loads(bytes.fromhex(kept))
    stolen = TestClient(browser.app, base_url=SITE, follow_redirects=False)
    stolen.cookies.set(PROVIDER_COOKIE, json.dumps([state, nonce, "v" * 60, following]).encode().hex())
    assert stolen.get(back).status_code == 401
    assert browser.get(back).status_code == 401
    assert PROVIDER_COOKIE not in browser.cookies
    assert accounts.list() == []


def test_a_local_account_is_not_taken_over_and_a_disabled_one_stays_out(browser, provider, accounts):
    accounts.add("mia", "admin", PASSWORD)
    assert "already" in signed_in(browser, provider).text
    assert COOKIE not in browser.cookies
    provider.claims = {"preferred_username": "Noa", "sub": "5678"}
    assert signed_in(browser, provider).status_code == 303
    accounts.disable("Noa")
    browser.cookies.clear()
    assert "is disabled" in signed_in(browser, provider).text
    with pytest.raises(ServiceError, match="has no password here"):
        accounts.change_password("Noa", PASSWORD)


def test_settings_of_a_provider_that_cannot_be_used_are_refused_at_the_start():
    usable = {"oidc_issuer": "https://login.example.org", "oidc_client_id": CLIENT, "oidc_roles": "*=viewer"}
    Provider(Settings(**usable))
    for changes in (
        {"oidc_issuer": "http://login.example.org"}, {"oidc_client_id": ""}, {"oidc_roles": ""},
        {"oidc_roles": "auditors=owner"},
    ):  # fmt: skip
        with pytest.raises(ServiceError):
            Provider(Settings(**usable | changes))


def signed_out(browser):
    return browser.post("/sign-out", data={"form": form_token(browser.cookies[COOKIE])})


def test_who_signs_out_here_is_signed_out_at_a_provider_that_offers_a_safe_address(browser, provider):
    provider.ending = "/end?tenant=1"
    signed_in(browser, provider)
    answer = signed_out(browser)
    sent = urlsplit(answer.headers["location"])
    told = {name: values[0] for name, values in parse_qs(sent.query).items()}
    assert (answer.status_code, f"{sent.scheme}://{sent.netloc}{sent.path}") == (303, f"{provider.url}/end")
    hint = jwt.decode(told.pop("id_token_hint"), KEY, algorithms=["RS256"])
    assert hint.claims["sub"] == "1234"
    assert told == {"tenant": "1", "client_id": CLIENT, "post_logout_redirect_uri": f"{SITE}/sign-in"}
    assert COOKIE not in browser.cookies
    for ending in ("", "http://elsewhere.example/end"):
        provider.ending = ending
        signed_in(browser, provider)
        answer = signed_out(browser)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in"), ending
        assert COOKIE not in browser.cookies


def test_whom_a_password_signed_in_is_not_sent_to_the_provider(browser, provider, accounts):
    provider.ending = "/end"
    accounts.add("Local", "viewer", PASSWORD)
    browser.get("/sign-in")
    told = {"name": "Local", "password": PASSWORD, "form": browser.cookies["coft-form"]}
    assert browser.post("/sign-in", data=told).status_code == 303
    assert signed_out(browser).headers["location"] == "/sign-in"


def test_a_link_of_another_website_begins_no_sign_in(browser):
    for site in ("cross-site", "same-site"):
        answer = browser.get("/sign-in/begin", headers={"Sec-Fetch-Site": site})
        assert (answer.status_code, PROVIDER_COOKIE in browser.cookies) == (200, False)
        assert "Sign in with Example" in answer.text
    for site in ("same-origin", "none"):
        assert browser.get("/sign-in/begin", headers={"Sec-Fetch-Site": site}).status_code == 303


def test_a_provider_that_refuses_is_away_or_sends_the_server_elsewhere_is_said(browser, provider, monkeypatch):
    sent = browser.get("/sign-in/begin")
    state = parse_qs(urlsplit(sent.headers["location"]).query)["state"][0]
    refused = browser.get(f"/sign-in/provider?error=access_denied&error_description=%3Cb%3Eno&state={state}")
    assert "&lt;b&gt;no" in refused.text
    with monkeypatch.context() as patch:
        patch.setattr(provider, "described", lambda: {"issuer": "https://another.example"})
        assert browser.get("/sign-in/begin").status_code == 502
    with monkeypatch.context() as patch:
        patch.setattr(browser.app.routes[0].endpoint.__self__.provider, "issuer", "http://127.0.0.1:9")
        answer = browser.get("/sign-in/begin")
        assert (answer.status_code, "cannot be asked at the moment" in answer.text) == (502, True)
    assert browser.get("/sign-in/begin").status_code == 303
    provider.moved = f"{provider.url}/moved"
    assert httpx.get(f"{provider.url}/.well-known/openid-configuration", follow_redirects=True).json()["issuer"]
    answer = browser.get("/sign-in/begin")
    assert (answer.status_code, "cannot be asked at the moment" in answer.text) == (502, True)


def test_a_provider_whose_certificate_nobody_vouches_for_is_not_asked(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    parts = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), certificate.public_bytes(Encoding.PEM)
    (tmp_path / "pem").write_bytes(b"".join(parts))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            told = dict.fromkeys(("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"), url)
            self.wfile.write(json.dumps(told).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        url = f"https://localhost:{server.server_port}"
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        settings = Settings(oidc_issuer=url, oidc_client_id=CLIENT, oidc_roles="*=viewer")
        trusting = ssl.create_default_context(cafile=str(tmp_path / "pem"))
        assert httpx.get(f"{url}/x", verify=trusting).json()["issuer"] == url
        with pytest.raises(SignInError, match="cannot be asked"):
            Provider(settings).address(Begun.new(""), SITE)
        server.shutdown()
