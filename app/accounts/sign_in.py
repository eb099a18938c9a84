"""Pages to sign in and out and to manage your own account, with their forms and cookies; they run no scripts."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from app.accounts.attempts import SignInError
from app.accounts.forms import (
    COOKIE,
    POLICY,
    address_of,
    browser_of,
    cookie_of,
    drop_cookie,
    form_token,
    is_same,
    keep_cookie,
    read_form,
    style,
)
from app.accounts.operations import browser_words
from app.accounts.permissions import PAGES
from app.accounts.projects import COOKIE as PROJECT_COOKIE
from app.accounts.projects import ProjectService
from app.accounts.provider import Begun, Provider
from app.accounts.service import AccountService
from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.markup import from_file
from app.shared.visitors import visitor_asking
from app.shared.wiring import Services
from db.accounts import AccountRecord
from db.types import NotFoundError, utc_now

NAME_COOKIE = "coft-account"
"""Holds the account's name for the pages' scripts; the server never reads it."""
FORM_COOKIE = "coft-form"
"""Holds what the form has to repeat, so that no other website can sign a browser in as somebody else."""
PROVIDER_COOKIE = "coft-provider"
"""Holds the first half of a sign-in by the provider."""
RETURNING = "/sign-in/provider"
OWN_ACCOUNT = "account/sign-ins"
"""The address of your own account's page."""
ELSEWHERE = ("cross-site", "same-site")
"""What browsers say of requests that another website has begun."""
RECENT = timedelta(minutes=15)
"""How long ago somebody whom a provider signs in may have signed in, where others give their password again."""
DONE = {
    "password": "Your password is changed, and every other browser is signed out.",
    "one": "That browser is signed out.",
    "others": "Every other browser is signed out.",
}
_PRINTABLE = re.compile(r"[!-~]{0,2000}")

Answer = Callable[[Request, FormData], Response]


def _posted(answer: Answer, own: bool = True, signed_out: bool = False) -> Callable[[Request], Awaitable[Response]]:
    """Gives a form to what answers it: ``own`` is one that a page of this server sends for a signed-in browser.

    ``signed_out`` lets browsers through that are not signed in.
    """

    async def endpoint(request: Request) -> Response:
        form = await read_form(request)
        secret = cookie_of(request, COOKIE)
        if own and not (signed_out and not secret) and not is_same(form.get("form"), form_token(secret)):
            return PlainTextResponse("This form was not sent by a page of this server; load the page again.", 403)
        return await run_in_threadpool(answer, request, form)

    return endpoint


def _next(asked: object) -> str:
    """The page to go to, with its parameters; anything but a page of this program is the first one."""
    text = asked if isinstance(asked, str) and _PRINTABLE.fullmatch(asked) else ""
    page, mark, query = text.partition("?")
    return f"{page}{mark}{query}" if (page in PAGES or page == OWN_ACCOUNT) and "#" not in text else ""


@dataclass(frozen=True)
class SignInPages:
    """Answers what browsers ask to sign in and out, and what owners of accounts ask about their own."""

    accounts: AccountService
    projects: ProjectService
    settings: Settings
    provider: Provider | None = None

    @classmethod
    def wired(cls, services: Services) -> SignInPages:
        """Built from the program's services."""
        settings = services.settings
        provider = Provider(settings) if settings.oidc_issuer else None
        return cls(services[AccountService], services[ProjectService], settings, provider)

    @property
    def routes(self) -> list[BaseRoute]:
        """Where browsers ask."""
        elsewhere = [Route("/sign-in/begin", self.sent), Route(RETURNING, self.returned)]
        return [
            *(elsewhere if self.provider is not None else []),
            Route("/sign-in", self.shown),
            Route("/sign-in", _posted(self.asked, own=False), methods=["POST"]),
            Route("/sign-in/style.css", self.style),
            Route("/sign-out", _posted(self.left, signed_out=True), methods=["POST"]),
            Route("/account", self.account),
            Route("/account/project", _posted(self.chosen), methods=["POST"]),
            Route(f"/{OWN_ACCOUNT}", self.own_account),
            Route(f"/{OWN_ACCOUNT}/end", _posted(self.ended), methods=["POST"]),
            Route("/account/password", _posted(self.changed), methods=["POST"]),
        ]

    def style(self, request: Request) -> Response:
        """The pages' style sheet."""
        del request
        return Response(style(), media_type="text/css", headers={"Cache-Control": "no-cache"})

    def page(
        self, request: HTTPConnection, status: int = 200, message: str = "", name: str = "", following: str = "",
        choose: bool = False,
    ) -> Response:  # fmt: skip
        """The page to sign in on."""
        form = cookie_of(request, FORM_COOKIE) or secrets.token_urlsafe(32)
        provider = self.provider.label if self.provider and not choose else ""
        told = {"message": message, "name": name, "form": form, "next": following, "choose": choose}
        answer = _shown("sign_in", status, **told, provider=provider)
        keep_cookie(answer, request, FORM_COOKIE, form, same_site="strict")
        return answer

    def shown(self, request: Request) -> Response:
        """Show the page."""
        return self.page(request, following=_next(request.query_params.get("next")))

    def asked(self, request: Request, form: FormData) -> Response:
        """Sign in by name and password."""
        following, name = _next(form.get("next")), str(form.get("name", ""))
        if not is_same(form.get("form"), cookie_of(request, FORM_COOKIE)):
            return self.page(request, 403, "The page was open for too long. Try again.", name, following)
        password, chosen = str(form.get("password", "")), str(form.get("chosen", ""))
        try:
            signed_in = self.accounts.sign_in(name, password, address_of(request), chosen, browser_of(request))
        except SignInError as refusal:
            status = 429 if refusal.throttled else 401
            return self.page(request, status, str(refusal), name[:100], following, refusal.choose)
        return self.signed_in(request, *signed_in, following)

    def sent(self, request: Request) -> Response:
        """Send a browser to the provider."""
        if self.provider is None or request.headers.get("sec-fetch-site") in ELSEWHERE:
            # A provider that knows the browser answers without asking: a link elsewhere must not begin that.
            return self.shown(request)
        begun = Begun.new(_next(request.query_params.get("next")))
        try:
            address = self.provider.address(begun, _of_this_server(request, RETURNING))
        except SignInError as refusal:
            return self.page(request, 502, str(refusal), following=begun.following)
        answer = RedirectResponse(address, 303)
        # Lax: the browser comes back from another website.
        keep_cookie(answer, request, PROVIDER_COOKIE, begun.text, 600)
        return answer

    def returned(self, request: Request) -> Response:
        """Sign a browser in that comes back from the provider."""
        begun = Begun.read(cookie_of(request, PROVIDER_COOKIE))
        if self.provider is None or begun is None:
            return self.page(request, 401, "This sign-in was not begun in this browser, or is over. Try again.")
        try:
            given, here = dict(request.query_params), _of_this_server(request, RETURNING)
            signed_in = self.accounts.admit(
                self.provider.person(begun, given, here), address_of(request), self.settings.oidc_project,
                browser_of(request),
            )  # fmt: skip
        except SignInError as refusal:
            answer = self.page(request, 401, str(refusal), following=begun.following)
        else:
            answer = self.signed_in(request, *signed_in, _next(begun.following))
        drop_cookie(answer, request, PROVIDER_COOKIE)
        return answer

    def signed_in(self, request: HTTPConnection, account: AccountRecord, secret: str, following: str) -> Response:
        """Let a browser keep its new sign-in in the place of the one before, and send it where it wanted to go."""
        self.accounts.sign_out(cookie_of(request, COOKIE), address_of(request))
        answer = _to(request, following)
        seconds = self.settings.sign_in_hours * 3600
        keep_cookie(answer, request, COOKIE, secret, seconds)
        keep_cookie(answer, request, NAME_COOKIE, quote(account.name), seconds, for_scripts=True)
        drop_cookie(answer, request, FORM_COOKIE)
        return answer

    def left(self, request: Request, form: FormData) -> Response:
        """Sign out."""
        del form
        id_token = self.accounts.sign_out(cookie_of(request, COOKIE), address_of(request))
        elsewhere = None
        if id_token and self.provider is not None:
            elsewhere = self.provider.end_address(id_token, _of_this_server(request, "/sign-in"))
        answer = RedirectResponse(elsewhere, 303) if elsewhere else _to(request, "sign-in")
        # Drafts and choices that pages keep in the browser go with who leaves it.
        answer.headers["Clear-Site-Data"] = '"storage"'
        for name in (COOKIE, NAME_COOKIE, PROJECT_COOKIE):
            drop_cookie(answer, request, name)
        return answer

    def account(self, request: Request) -> Response:
        """Who is signed in, for the top bar."""
        visitor = visitor_asking(request)
        if (account := visitor.account) is None:
            return PlainTextResponse("Nobody is signed in.", 401)
        told = {
            "name": account.name,
            "role": account.role,
            "form": form_token(cookie_of(request, COOKIE)),
            "project": "" if visitor.project is None else visitor.project.name,
            "projects": [{"id": project.id, "name": project.name} for project in self.projects.of(account)],
        }
        return JSONResponse(told, headers={"Cache-Control": "no-store"})

    def chosen(self, request: Request, form: FormData) -> Response:
        """Show another project from now on, on the page that the browser was on."""
        answer = _to(request, _next(form.get("next")))
        # The number of a project that the account is not a member of counts as none when it comes back.
        number = str(form.get("project", ""))[:20]
        keep_cookie(answer, request, PROJECT_COOKIE, quote(number), self.settings.sign_in_hours * 3600)
        return answer

    def own_account(self, request: Request, status: int = 200, message: str = "") -> Response:
        """The page of the account that asks: where it is signed in, and its password."""
        account, secret = _account(request), cookie_of(request, COOKIE)
        present = self.accounts.held(secret)
        return _shown(
            "own_account",
            status,
            account=account,
            sign_ins=self.accounts.sign_ins(account),
            present=None if present is None else present.id,
            form=form_token(secret),
            browser=browser_words,
            message=message,
            done=DONE.get(request.query_params.get("done", ""), ""),
            minutes=int(RECENT.total_seconds() // 60),
        )

    def ended(self, request: Request, form: FormData) -> Response:
        """End one sign-in, or all others."""
        account, secret, asked = _account(request), cookie_of(request, COOKIE), str(form.get("number", ""))
        number = int(asked) if asked.isdecimal() and len(asked) < 10 else None
        try:
            self._confirm(request, account, form)
            self.accounts.end_sign_ins(account, number, secret, address_of(request))
        except (ServiceError, NotFoundError) as refusal:
            return self._refused(request, refusal)
        return _to(request, f"{OWN_ACCOUNT}?done={'others' if number is None else 'one'}")

    def changed(self, request: Request, form: FormData) -> Response:
        """Change the password."""
        account, chosen = _account(request), str(form.get("chosen", ""))
        try:
            self._confirm(request, account, form)
            secret = self.accounts.change_own_password(account, chosen, address_of(request), browser_of(request))
        except ServiceError as refusal:
            return self._refused(request, refusal)
        return self.signed_in(request, account, secret, f"{OWN_ACCOUNT}?done=password")

    def _confirm(self, request: Request, account: AccountRecord, form: FormData) -> None:
        """Require the password again, or a recent sign-in by the provider."""
        if account.issuer is None:
            self.accounts.confirm(account, str(form.get("password", "")), address_of(request))
            return
        held = self.accounts.held(cookie_of(request, COOKIE))
        if held is None or utc_now() - held.created_at > RECENT:
            raise SignInError("You signed in too long ago for this. Sign out, sign in again, and come back here.")

    def _refused(self, request: Request, refusal: Exception) -> Response:
        if isinstance(refusal, SignInError):
            return self.own_account(request, 429 if refusal.throttled else 403, str(refusal))
        return self.own_account(request, 404 if isinstance(refusal, NotFoundError) else 422, str(refusal))


def _shown(name: str, status: int, /, **values: object) -> Response:
    """A page that runs no script."""
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
    return Response(str(from_file(f"accounts/{name}.html", **values)), status, headers, "text/html")


def _to(request: HTTPConnection, page: str) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/{page}", 303)


def _account(request: Request) -> AccountRecord:
    account = visitor_asking(request).account
    assert account is not None
    return account


def _of_this_server(request: Request, path: str) -> str:
    """An address here, by the name that this server was asked by."""
    return f"{str(request.base_url).rstrip('/')}{path}"
