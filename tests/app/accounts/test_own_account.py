"""What owners do with their accounts: see and end their sign-ins, and change their passwords; and how sign-ins end."""

import re
from datetime import timedelta

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from app.accounts.attempts import PER_ACCOUNT, SignInError
from app.accounts.forms import COOKIE, form_token
from app.accounts.operations import browser_words, end_sign_ins, list_sign_ins
from app.accounts.projects import ProjectService
from app.accounts.provider import Person
from app.accounts.sign_in import RECENT, SignInPages
from app.shared.errors import ServiceError
from app.shared.visitors import SCOPE_KEY, Visitor, answering
from db.trail import TrailRepository
from db.types import NotFoundError, utc_now
from tests.app.accounts.conftest import PASSWORD, quick_accounts

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"
CHROME = "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/143.0 Safari/537.36"
ANOTHER = "quiet rivers under old bridges"


@pytest.fixture
def accounts(wired):
    service = quick_accounts(wired)
    for name, role in (("Ada Lind", "admin"), ("Bo Mills", "viewer")):
        service.add(name, role, PASSWORD)
    return service


@pytest.fixture
def browser_of(wired, accounts):
    """A browser, and a server that asks its cookie who it is."""
    site = Starlette(routes=SignInPages(accounts, ProjectService(wired), wired.settings).routes)

    async def asked(scope, receive, send):
        if scope["type"] == "http" and (account := accounts.by_cookie(Request(scope).cookies.get(COOKIE, ""))):
            scope[SCOPE_KEY] = Visitor(account.name, "", account)
        await site(scope, receive, send)

    def browser(agent, name="Bo Mills"):
        client = TestClient(asked, base_url="http://audit.example.org", follow_redirects=False)
        client.headers["User-Agent"] = agent
        if name is not None:
            client.get("/sign-in")
            form = {"name": name, "password": PASSWORD, "form": client.cookies["coft-form"]}
            assert client.post("/sign-in", data=form).status_code == 303
        return client

    return browser


def posted(client, path, **form):
    return client.post(f"/account/{path}", data={"form": form_token(client.cookies[COOKIE]), **form})


def is_in(accounts, client):
    return accounts.by_cookie(client.cookies[COOKIE]) is not None


def test_an_owner_sees_where_she_is_signed_in_and_signs_others_out_by_her_password(accounts, browser_of):
    here, there, third = (browser_of(agent) for agent in (FIREFOX, CHROME, FIREFOX))
    of_another = browser_of(CHROME, "Ada Lind")
    page = here.get("/account/sign-ins").text
    assert page.count("<li>") == 3
    for shown in ("Firefox on Linux</strong>, this browser", "Chrome on Windows</strong>", "from testclient", "since"):
        assert shown in page
    numbers = [sign_in.id for sign_in in accounts.sign_ins(accounts.named("Bo Mills"))]
    assert set(re.findall(r'value="(\d+)"', page)) == {str(number) for number in numbers[:2]}
    refused = posted(here, "sign-ins/end", number=str(numbers[1]), password="not hers at all")
    assert (refused.status_code, is_in(accounts, there)) == (403, True)
    assert here.post("/account/sign-ins/end", data={"form": "made up", "password": PASSWORD}).status_code == 403
    strange = accounts.sign_ins(accounts.named("Ada Lind"))[0].id
    assert posted(here, "sign-ins/end", number=str(strange), password=PASSWORD).status_code == 404
    assert is_in(accounts, of_another)
    done = posted(here, "sign-ins/end", number=str(numbers[1]), password=PASSWORD)
    assert (done.status_code, done.headers["location"]) == (303, "/account/sign-ins?done=one")
    assert [is_in(accounts, client) for client in (here, there, third)] == [True, False, True]
    posted(here, "sign-ins/end", number="others", password=PASSWORD)
    assert [is_in(accounts, client) for client in (here, third, of_another)] == [True, False, True]


def test_a_new_password_takes_the_present_one_and_ends_all_other_sign_ins(wired, accounts, browser_of):
    here, there = browser_of(FIREFOX), browser_of(CHROME)
    before = here.cookies[COOKIE]
    for present, chosen, status in (("not hers at all", ANOTHER, 403), (PASSWORD, "short", 422), (PASSWORD, "", 422)):
        assert posted(here, "password", password=present, chosen=chosen).status_code == status
    assert is_in(accounts, there)
    done = posted(here, "password", password=PASSWORD, chosen=ANOTHER)
    assert (done.status_code, done.headers["location"]) == (303, "/account/sign-ins?done=password")
    assert (is_in(accounts, here), is_in(accounts, there), accounts.by_cookie(before)) == (True, False, None)
    with pytest.raises(SignInError):
        accounts.sign_in("Bo Mills", PASSWORD, "10.0.0.1")
    assert accounts.sign_in("Bo Mills", ANOTHER, "10.0.0.1")[0].name == "Bo Mills"
    told = [(entry.action, entry.outcome) for entry in TrailRepository(wired.database).list()]
    assert ("confirm a password", "refused") in told
    assert ("change a password", "done") in told


def test_who_is_at_a_signed_in_browser_cannot_try_passwords_without_end(accounts, browser_of):
    here = browser_of(FIREFOX)
    tried = [posted(here, "password", password="a guess", chosen=ANOTHER).status_code for _ in range(PER_ACCOUNT + 1)]
    assert tried == [403] * PER_ACCOUNT + [429]
    assert posted(here, "password", password=PASSWORD, chosen=ANOTHER).status_code == 429


def test_whom_a_provider_signs_in_has_to_have_done_so_a_moment_ago(accounts, browser_of, monkeypatch):
    person = Person("https://login.example.org", "1234", "Mia", "viewer")
    secrets = [accounts.admit(person, "10.0.0.1", browser=CHROME)[1] for _ in range(2)]
    here = browser_of(FIREFOX, None)
    here.cookies.set(COOKIE, secrets[0])
    assert "Change your password" not in here.get("/account/sign-ins").text
    with monkeypatch.context() as later:
        later.setattr("app.accounts.sign_in.utc_now", lambda: utc_now() + RECENT)
        assert "too long ago" in posted(here, "sign-ins/end", number="others").text
    assert accounts.by_cookie(secrets[1])
    assert posted(here, "sign-ins/end", number="others").status_code == 303
    assert accounts.by_cookie(secrets[1]) is None


def test_a_sign_in_that_is_not_used_ends_and_each_use_puts_that_off(accounts, monkeypatch):
    secret, moment = accounts.sign_in("Bo Mills", PASSWORD, "10.0.0.1")[1], utc_now()

    def after(minutes):
        monkeypatch.setattr("app.accounts.service.utc_now", lambda: moment + timedelta(minutes=minutes))

    for minutes in (50, 100, 150):
        after(minutes)
        assert accounts.by_cookie(secret).name == "Bo Mills"
    after(205)
    assert accounts.by_cookie(secret, used=False).name == "Bo Mills"
    after(211)
    assert accounts.by_cookie(secret) is None
    assert accounts.sign_ins(accounts.named("Bo Mills")) == []


def test_programs_list_and_end_sign_ins_their_own_by_a_token_and_those_of_others_as_admin(wired, accounts):
    ada, bo = (accounts.named(name) for name in ("Ada Lind", "Bo Mills"))
    secret, other = (accounts.sign_in("Bo Mills", PASSWORD, "10.0.0.1", browser=FIREFOX)[1] for _ in range(2))
    first = accounts.held(secret).id

    def asked(account, operation, *given, by_token=True):
        with answering(Visitor(account.name, "", account, by_token=by_token)):
            whole = [*given, *[None] * (len(operation.arguments) - len(given))]
            return operation.call(wired, **operation.checked(whole))

    (newest, _) = list_sign_ins.json(asked(bo, list_sign_ins, ""))
    assert (newest["address"], newest["browser"]) == ("10.0.0.1", FIREFOX)
    assert "digest" not in newest
    assert asked(bo, list_sign_ins, "") == asked(ada, list_sign_ins, "bo mills") != asked(ada, list_sign_ins, "")
    for operation in (list_sign_ins, end_sign_ins):
        with pytest.raises(ServiceError, match="Only admins"):
            asked(bo, operation, "Ada Lind")
    # A browser that somebody left open gives the password on the page instead.
    with pytest.raises(ServiceError, match="on the page"):
        asked(bo, end_sign_ins, "", by_token=False)
    assert asked(bo, end_sign_ins, "", first) == 1
    assert (accounts.by_cookie(secret), accounts.by_cookie(other).name) == (None, "Bo Mills")
    with pytest.raises(NotFoundError):
        asked(bo, end_sign_ins, "", first)
    assert asked(ada, end_sign_ins, "Bo Mills", by_token=False) == 1
    assert accounts.by_cookie(other) is None


def test_who_signs_in_again_ends_what_the_browser_had_before_and_browsers_have_names(accounts, browser_of):
    here = browser_of(FIREFOX)
    before = here.cookies[COOKIE]
    here.get("/sign-in")
    form = {"name": "Ada Lind", "password": PASSWORD, "form": here.cookies["coft-form"]}
    assert here.post("/sign-in", data=form).status_code == 303
    assert here.cookies[COOKIE] != before
    assert (accounts.by_cookie(before), accounts.by_cookie(here.cookies[COOKIE]).name) == (None, "Ada Lind")
    assert [browser_words(said) for said in (FIREFOX, CHROME, "curl/8.1 x", None)] == [
        "Firefox on Linux", "Chrome on Windows", "curl/8.1", "",
    ]  # fmt: skip
