"""Signing in: passwords, cookies, forms, attempts, tokens, and what an account may not do to itself."""

from __future__ import annotations

import hashlib
import io
import math
import re
import sqlite3
from datetime import timedelta

import pytest
from sqlalchemy.exc import DatabaseError
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app.accounts.attempts import PER_ACCOUNT, PER_ADDRESS, SELDOM, SignInError
from app.accounts.forms import COOKIE as PLAIN_COOKIE
from app.accounts.forms import PREFIX, form_token
from app.accounts.operations import export_trail
from app.accounts.passwords import COMMON, DIGEST_BYTES, ONE_TIME, digest_of_common, one_time_password, usable
from app.accounts.projects import ProjectService
from app.accounts.sign_in import SignInPages
from app.cli import main
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.server import require_accounts_elsewhere
from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.visitors import Visitor, answering
from db.accounts import SignInsRepository
from db.projects import ProjectsRepository
from db.scope import DEFAULT
from db.sessions import SessionsRepository
from db.trail import TrailRepository
from db.types import ConflictError, utc_now
from tests.app.accounts.conftest import PASSWORD, quick_accounts
from tests.db.conftest import new_session

COOKIE = f"{PREFIX}{PLAIN_COOKIE}"
"""What a browser over TLS calls it."""


@pytest.fixture
def accounts(wired):
    service = quick_accounts(wired)
    service.add("Ada Admin", "admin", PASSWORD)
    return service


@pytest.fixture
def browser_of(wired, accounts):
    """A browser that asks over TLS, or without it."""

    def client(base_url="https://audit.example.org"):
        app = Starlette(routes=SignInPages(accounts, ProjectService(wired), wired.settings).routes)
        return TestClient(app, base_url=base_url, follow_redirects=False)

    return client


def sent(client, password=PASSWORD, name="ada admin", **more):
    client.get("/sign-in")
    form = {
        "name": name, "password": password,
        "form": client.cookies.get("__Host-coft-form") or client.cookies.get("coft-form", ""), **more,
    }  # fmt: skip
    return client.post("/sign-in", data=form)


def test_nothing_that_lets_somebody_in_is_stored_as_it_is(wired, accounts, settings):
    _, secret = accounts.sign_in("Ada Admin", PASSWORD, "10.0.0.1")
    token = accounts.add_token("Ada Admin", "a program", 1).token
    stored = sqlite3.connect(settings.database_url.removeprefix("sqlite:///")).iterdump()
    everything = "\n".join(stored)
    for text in (PASSWORD, secret, token):
        assert text not in everything
    assert "$argon2id$" in everything
    assert hashlib.sha256(token.encode()).hexdigest() in everything


def test_the_cookie_that_signs_in_is_for_no_script_and_behind_tls_for_nothing_but_tls(browser_of):
    for scheme, secure in (("https", True), ("http", False)):
        answer = sent(browser_of(f"{scheme}://audit.example.org"), next="calibrate?calibration=3")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/calibrate?calibration=3"
        cookies = answer.headers.get_list("set-cookie")
        assert cookies
        assert {cookie.startswith(PREFIX) for cookie in cookies} == {secure}
        assert {"Path=/;" in f"{cookie};" and "Domain" not in cookie for cookie in cookies} == {True}
        assert {"Secure" in cookie for cookie in cookies} == {secure}
        held = next(cookie for cookie in cookies if cookie.startswith(COOKIE if secure else PLAIN_COOKIE))
        assert "HttpOnly" in held
        assert "SameSite=lax" in held
        assert ("Secure" in held) is secure
        assert PASSWORD not in "".join(cookies)


def test_refusals_are_alike_and_the_page_shows_what_is_typed_as_text_without_a_script(browser_of):
    client = browser_of()
    wrong, unknown = sent(client, "another four words"), sent(client, name="Nobody")
    assert (wrong.status_code, unknown.status_code) == (401, 401)
    assert COOKIE not in client.cookies
    for answer in (wrong, unknown):
        assert "do not belong together" in answer.text
    answer = sent(browser_of(), "x", name='"><script>alert(1)</script>')
    assert "<script" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_form_of_another_website_does_nothing_and_nobody_is_sent_elsewhere(browser_of):
    for following in ("https://evil.example", "//evil.example", "/\\evil", "nowhere", "a\r\nb: c"):
        assert sent(browser_of(), next=following).headers["location"] == "/", following
    client = browser_of()
    assert sent(client, form="made up").status_code == 403
    assert sent(client).status_code == 303
    assert client.post("/sign-out", data={"form": "made up"}).status_code == 403


def test_attempts_are_limited_for_each_name_and_each_address_on_all_servers_of_a_store(wired, accounts):
    for _ in range(PER_ACCOUNT):
        with pytest.raises(SignInError, match="do not belong"):
            accounts.sign_in("Ada Admin", "wrong", "10.0.0.1")
    other_server = quick_accounts(wired)
    with pytest.raises(SignInError) as refused:
        other_server.sign_in("ADA ADMIN", PASSWORD, "10.0.0.2")
    assert refused.value.throttled
    for number in range(PER_ADDRESS - PER_ACCOUNT):
        with pytest.raises(SignInError, match="do not belong"):
            accounts.sign_in(f"nobody {number}", "wrong", "10.0.0.1")
    accounts.add("Bo", "viewer", PASSWORD)
    with pytest.raises(SignInError) as refused:
        accounts.sign_in("Bo", PASSWORD, "10.0.0.1")
    assert refused.value.throttled
    assert accounts.sign_in("Bo", PASSWORD, "10.0.0.3")[0].name == "Bo"


def test_attempts_beyond_the_limit_stand_in_the_trail_once_a_minute(wired, accounts):
    for _ in range(PER_ACCOUNT + 5):
        with pytest.raises(SignInError):
            accounts.sign_in("Ada Admin", "wrong", "10.0.0.1")
    for _ in range(3):
        accounts.attempts.note_strange_token("10.0.0.9")
    trail = TrailRepository(wired.database)
    told = [(entry.action, entry.subject, entry.outcome, entry.address) for entry in trail.list()]
    assert told.count(("sign in", "Ada Admin", "refused", "10.0.0.1")) == PER_ACCOUNT
    assert told.count(("sign in", "Ada Admin", "too many attempts", "10.0.0.1")) == 1
    assert told.count(("show a token", "", "refused", "10.0.0.9")) == 1
    for number in range(SELDOM + 20):
        accounts.attempts.note_strange_token(f"10.0.1.{number}")
    assert len(trail.list()) < len(told) + SELDOM


def test_attempts_are_forgotten_after_their_window(wired):
    sign_ins = SignInsRepository(wired.database)
    assert sign_ins.attempt({"account:a": 1}, utc_now() - timedelta(minutes=15)) == []
    assert sign_ins.attempt({"account:a": 1}, utc_now() - timedelta(minutes=15)) == ["account:a"]
    assert sign_ins.attempt({"account:a": 1}, utc_now()) == []


def test_what_let_somebody_in_ends_with_sign_out_new_password_disabling_and_time(wired, accounts):
    accounts.add("Bo", "viewer", PASSWORD)

    def let_in():
        return accounts.sign_in("Bo", PASSWORD, "10.0.0.1")[1]

    secret = let_in()
    assert accounts.by_cookie(secret).name == "Bo"
    accounts.sign_out(secret)
    assert accounts.by_cookie(secret) is None
    secret = let_in()
    accounts.change_password("Bo", PASSWORD)
    assert accounts.by_cookie(secret) is None
    secret, token = let_in(), accounts.add_token("Bo", "a program", None)
    assert accounts.by_token(token.token)[0].name == "Bo"
    accounts.disable("Bo")
    assert accounts.by_cookie(secret) is None
    assert accounts.by_token(token.token) is None
    with pytest.raises(SignInError):
        let_in()
    accounts.disable("Bo", disabled=False)
    assert accounts.by_token(token.token)[0].name == "Bo"
    accounts.revoke_token("Bo", token.record.id)
    assert accounts.by_token(token.token) is None
    SignInsRepository(wired.database).add(2, "d" * 64, utc_now() - timedelta(seconds=1))
    assert SignInsRepository(wired.database).holding("d" * 64, utc_now()) is None


def test_there_is_always_an_admin_and_what_no_account_can_be_is_refused(accounts):
    for change in (lambda: accounts.change_role("Ada Admin", "lead"), lambda: accounts.disable("Ada Admin")):
        with pytest.raises(ConflictError, match="No admin would be left"):
            change()
    assert accounts.named("ada admin").role == "admin"
    with pytest.raises(ConflictError, match="already"):
        accounts.add("ADA ADMIN", "viewer", PASSWORD)
    for name, role, password in (
        ("", "viewer", PASSWORD), ("a<b>", "viewer", PASSWORD), ("Bo", "owner", PASSWORD), ("Bo", "viewer", "short"),
        ("Bo", "viewer", "aaaaaaaaaaaaaaaa"),
    ):  # fmt: skip
        with pytest.raises(ServiceError):
            accounts.add(name, role, password)
    assert [account.name for account in accounts.list()] == ["Ada Admin"]


def test_commands_read_the_password_from_standard_input_and_the_trail_is_checked(
    tmp_path, monkeypatch, capsys, settings
):
    monkeypatch.setenv("COFT_DATABASE_URL", settings.database_url)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    assert main(["accounts", "add", "Cy", "--role", "admin"]) == 0
    assert main(["accounts", "list"]) == 0
    assert "Cy: admin" in capsys.readouterr().out
    assert main(["trail", "export", str(tmp_path / "trail.csv")]) == 0
    assert "add an account" in (tmp_path / "trail.csv").read_text("utf-8")
    assert main(["trail", "verify"]) == 0
    with sqlite3.connect(settings.database_url.removeprefix("sqlite:///")) as store:
        store.execute("DROP TRIGGER audit_trail_keep")
        store.execute("UPDATE audit_trail SET subject = 'Di, viewer'")
    assert main(["trail", "verify"]) == 1
    assert "Entry 1 was changed" in capsys.readouterr().out


def test_programs_are_given_the_whole_trail_which_the_store_refuses_to_change(wired, accounts):
    entries, check = export_trail.call(wired)
    assert [entry.action for entry in entries] == [entry.action for entry in TrailRepository(wired.database).list()]
    assert (check.whole, check.entries, check.head) == (True, len(entries), entries[-1].digest)
    before = TrailRepository(wired.database).list()
    for statement in ("UPDATE audit_trail SET actor = 'x'", "DELETE FROM audit_trail"):
        with pytest.raises(DatabaseError, match="only ever added"), wired.database.engine.begin() as connection:
            connection.exec_driver_sql(statement)
    assert TrailRepository(wired.database).list() == before != []


def test_a_servers_address_that_others_reach_needs_accounts_with_an_admin(monkeypatch, capsys, settings):
    monkeypatch.setenv("COFT_DATABASE_URL", "sqlite:////nowhere/at/all.db")
    for host in ("0.0.0.0", "::", "192.168.1.5", "audit.example.org", "localhost.example.org"):
        with pytest.raises(ServiceError, match="accounts add NAME --role admin\n    export COFT_ACCOUNTS=on"):
            require_accounts_elsewhere(Settings(host=host))
        assert main(["serve", "--host", host]) == 1
        assert "COFT_ACCOUNTS=on" in capsys.readouterr().err
        for safe in (Settings(host=host, accounts="on"), Settings(host=host, accounts="elsewhere"), Settings()):
            require_accounts_elsewhere(safe)
    monkeypatch.setenv("COFT_DATABASE_URL", settings.database_url)
    monkeypatch.setenv("COFT_ACCOUNTS", "on")
    monkeypatch.setattr("app.server.require_free_port", lambda _: None)
    assert main(["serve"]) == 1
    assert "there is no admin yet" in capsys.readouterr().err


def as_account(wired, account):
    return answering(Visitor(account.name, "", account, ProjectsRepository(wired.database).get(DEFAULT)))


def test_the_account_signs_and_reads_whatever_name_a_request_gives(wired, accounts):
    session = SessionsRepository(wired.database).create(new_session()).id
    anna, ben = (accounts.add(name, "reviewer", PASSWORD) for name in ("Anna", "Ben"))
    verdicts = wired[VerdictService]
    with as_account(wired, anna):
        assert verdicts.add(VerdictRequest(session, "Ben", "fair")).reviewer == "Anna"
    with as_account(wired, ben):
        verdicts.start_review(session, "Anna")
        for name in (None, "", "Anna", "Somebody"):
            assert [entry.reviewer for entry in verdicts.history(session, name)] == ["Ben"]
            assert verdicts.current(session, name).targets == ()
        with pytest.raises(ServiceError, match="finish your review first"):
            verdicts.whole_history(session)
        verdicts.finish_review(session, "Anna")
        assert next(entry.reviewer for entry in verdicts.whole_history(session)) == "Anna"


def test_who_exports_a_session_has_seen_what_others_said_of_it(wired, accounts):
    session = SessionsRepository(wired.database).create(new_session()).id
    anna, ben = (accounts.add(name, "reviewer", PASSWORD) for name in ("Anna", "Ben"))
    with as_account(wired, anna):
        wired[VerdictService].add(VerdictRequest(session, "", "unfair"))
    with as_account(wired, ben):
        wired[VerdictService].whole_history(session)
        with pytest.raises(ServiceError, match="may have seen"):
            wired[VerdictService].start_review(session, "")


def test_a_password_of_an_admin_holds_once_and_its_owner_chooses_another(browser_of, accounts):
    made = accounts.invite("Zoe", "viewer")
    browser = browser_of()
    asked = sent(browser, made.password, "Zoe")
    assert (asked.status_code, "New password" in asked.text) == (401, True)
    assert COOKIE not in browser.cookies
    for chosen, said in (("short", "has 5 characters"), (made.password, "choose another")):
        answer = sent(browser, made.password, "Zoe", chosen=chosen)
        assert answer.status_code == 401
        assert said in answer.text
    assert sent(browser, made.password, "Zoe", chosen="words of her own choice").status_code == 303
    assert COOKIE in browser.cookies
    assert sent(browser_of(), made.password, "Zoe").status_code == 401
    assert sent(browser_of(), "words of her own choice", "Zoe").status_code == 303
    again = accounts.reset_password("Zoe")
    assert accounts.by_cookie(browser.cookies[COOKIE]) is None
    assert sent(browser_of(), "words of her own choice", "Zoe").status_code == 401
    assert "New password" in sent(browser_of(), again.password, "Zoe").text


def test_all_tokens_of_an_account_are_revoked_at_once(accounts):
    accounts.add("Xenia", "viewer", PASSWORD)
    made = [accounts.add_token("Xenia", label, 1).token for label in ("a", "b")]
    assert accounts.revoke_tokens("Xenia") == 2
    assert [accounts.by_token(token) for token in made] == [None, None]


def test_password_fields_hide_what_is_typed_and_an_admins_password_ceases_to_hold(browser_of, accounts, monkeypatch):
    made = accounts.invite("Wim", "viewer")
    page = sent(browser_of(), made.password, "Wim").text
    for name, kind in (("password", "current-password"), ("chosen", "new-password")):
        (field,) = re.findall(rf'<input id="{name}"[^>]*>', page)
        assert 'type="password"' in field
        assert f'autocomplete="{kind}"' in field
    made = accounts.invite("Yan", "viewer")
    monkeypatch.setattr("app.accounts.service.utc_now", lambda: utc_now() + ONE_TIME)
    answer = sent(browser_of(), made.password, "Yan", chosen="words of her own choice")
    assert "do not belong together" in answer.text


def test_a_password_is_checked_up_to_its_last_character_and_its_owners_choice_holds_for_years(accounts, monkeypatch):
    longest = (" Ünïcode" + "nobody guesses this" * 60)[:1000]
    accounts.add("Vera", "viewer", longest)
    for wrong in (longest + "x", longest[:-1], longest.strip(), longest.lower(), longest.upper()):
        with pytest.raises(SignInError):
            accounts.sign_in("Vera", wrong, "10.0.0.1")
    assert accounts.sign_in("Vera", longest, "10.0.0.1")[0].name == "Vera"
    monkeypatch.setattr("app.accounts.service.utc_now", lambda: utc_now() + timedelta(days=3650))
    assert accounts.sign_in("Ada Admin", PASSWORD, "10.0.0.1")[0].name == "Ada Admin"


def test_no_header_changes_a_visitors_address_and_who_signs_out_leaves_nothing_in_the_browser(browser_of, wired):
    client = browser_of()
    client.headers |= {"X-Forwarded-For": "192.0.2.1", "X-Real-IP": "192.0.2.1", "Forwarded": "for=192.0.2.1"}
    sent(client)
    assert [entry.address for entry in TrailRepository(wired.database).list()][-1] == "testclient"
    client = browser_of()
    sent(client)
    client.cookies.set("__Host-coft-project", "1", domain="audit.example.org")
    answer = client.post("/sign-out", data={"form": form_token(client.cookies[COOKIE])})
    assert (answer.status_code, answer.headers["clear-site-data"]) == (303, '"storage"')
    assert [name for name in client.cookies if "form" not in name] == []


def test_common_passwords_and_their_variations_are_refused_in_whatever_case():
    for password in (
        "passwordpassword", "123456789012", "qwertyuiop[]", "iloveyou1234", "Password1234!", "unbelievable",
        "1qaz2wsx3edc", "P@ssw0rd2024!", "letmeinletmein", "correcthorse",
    ):  # fmt: skip
        with pytest.raises(ServiceError, match="easily guessed"):
            usable(password, "Bo Mills")
    kept = COMMON.read_bytes()
    digests = [kept[at : at + DIGEST_BYTES] for at in range(0, len(kept), DIGEST_BYTES)]
    assert len(digests) == 10_000
    assert digests == sorted(set(digests))
    # Words typed on a Russian keyboard that is set to English: common, and hard to guess for who does not know it.
    for password in ("lytdybrbdfvgbhf", "NHBYBNHJNJKEJK", "gfhfktkjuhfv"):
        assert digest_of_common(password) in digests
        with pytest.raises(ServiceError, match="easily guessed"):
            usable(password, "Bo Mills")


def test_a_password_has_neither_the_name_of_the_account_nor_the_programs_in_it():
    for word in ("coft", "C.O.F.T.", "mills", "MiLLs", "B-o M_ills"):
        with pytest.raises(ServiceError, match=" in it, "):
            usable(f"quiet rivers {word} under old bridges", "Bo Mills")
    # Two letters stand in many words.
    usable("bold rivers under old bobbins", "Bo Mills")


def test_passwords_that_the_program_makes_are_random_and_long():
    made = [one_time_password() for _ in range(200)]
    assert len(set(made)) == 200
    assert {len(password.replace("-", "")) for password in made} == {28}
    letters = set("".join(made)) - {"-"}
    assert len(letters) == 31
    assert 28 * math.log2(len(letters)) > 128
