"""Signing in and out in a browser: a page that runs no script, its forms, and the cookies that they set."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
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
    foreign_form,
    form_token,
    is_same,
    keep_cookie,
    own_form,
    read_form,
    style,
)
from app.accounts.permissions import PAGES
from app.accounts.projects import COOKIE as PROJECT_COOKIE
from app.accounts.projects import ProjectService
from app.accounts.provider import Begun, Provider
from app.accounts.service import AccountService
from app.settings import Settings
from app.shared.markup import from_file
from app.shared.visitors import visitor_asking
from app.shared.wiring import Services
from db.accounts import AccountRecord

NAME_COOKIE = "coft-account"
"""Holds the account's name for the pages' scripts; the server never reads it."""
FORM_COOKIE = "coft-form"
"""Holds what the form has to repeat, so that no other website can sign a browser in as somebody else."""

PROVIDER_COOKIE = "coft-provider"
"""Holds the first half of a sign-in by the provider."""
RETURNING = "/sign-in/provider"
OWN_ACCOUNT = "account/sign-ins"
"""The page of one's own account."""
ELSEWHERE = ("cross-site", "same-site")
"""What browsers say of requests that another website has begun."""

_PRINTABLE = re.compile(r"[!-~]{0,2000}")


def _next(asked: object) -> str:
    """The page to go to, with its parameters; anything but a page of this program is the first one."""
    text = asked if isinstance(asked, str) and _PRINTABLE.fullmatch(asked) else ""
    page, mark, query = text.partition("?")
    return f"{page}{mark}{query}" if (page in PAGES or page == OWN_ACCOUNT) and "#" not in text else ""


@dataclass(frozen=True)
class SignInPages:
    """Answers what browsers ask to sign in and out."""

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
        elsewhere = [
            Route("/sign-in/begin", self.sent, methods=["GET"]),
            Route(RETURNING, self.returned, methods=["GET"]),
        ]
        return [
            *(elsewhere if self.provider is not None else []),
            Route("/sign-in", self.shown, methods=["GET"]),
            Route("/sign-in", self.asked, methods=["POST"]),
            Route("/sign-in/style.css", self.style, methods=["GET"]),
            Route("/sign-out", self.left, methods=["POST"]),
            Route("/account", self.account, methods=["GET"]),
            Route("/account/project", self.chosen, methods=["POST"]),
        ]

    def style(self, request: Request) -> Response:
        """The page's style sheet."""
        del request
        return Response(style(), media_type="text/css", headers={"Cache-Control": "no-cache"})

    def page(
        self, request: HTTPConnection, status: int = 200, message: str = "", name: str = "", following: str = "",
        choose: bool = False,
    ) -> Response:  # fmt: skip
        """The page to sign in on."""
        form = cookie_of(request, FORM_COOKIE) or secrets.token_urlsafe(32)
        text = from_file(
            "accounts/sign_in.html",
            message=message,
            name=name,
            form=form,
            next=following,
            choose=choose,
            provider=self.provider.label if self.provider and not choose else "",
        )
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        answer = Response(str(text), status, headers, "text/html")
        keep_cookie(answer, request, FORM_COOKIE, form, same_site="strict")
        return answer

    def shown(self, request: Request) -> Response:
        """Show the page."""
        return self.page(request, following=_next(request.query_params.get("next")))

    async def asked(self, request: Request) -> Response:
        """Sign in by name and password."""
        form = await read_form(request)
        following, name = _next(form.get("next")), str(form.get("name", ""))
        if not is_same(form.get("form"), cookie_of(request, FORM_COOKIE)):
            return self.page(request, 403, "The page was open for too long. Try again.", name, following)
        try:
            account, secret = await run_in_threadpool(
                self.accounts.sign_in, name, str(form.get("password", "")), address_of(request),
                str(form.get("chosen", "")), browser_of(request),
            )  # fmt: skip
        except SignInError as refusal:
            status = 429 if refusal.throttled else 401
            return self.page(request, status, str(refusal), name[:100], following, refusal.choose)
        return await run_in_threadpool(self.signed_in, request, account, secret, following)

    async def sent(self, request: Request) -> Response:
        """Send a browser to the provider."""
        if self.provider is None or request.headers.get("sec-fetch-site") in ELSEWHERE:
            # A provider that knows the browser answers without asking: a link elsewhere must not begin that.
            return self.shown(request)
        begun = Begun.new(_next(request.query_params.get("next")))
        try:
            address = await run_in_threadpool(self.provider.address, begun, _of_this_server(request, RETURNING))
        except SignInError as refusal:
            return self.page(request, 502, str(refusal), following=begun.following)
        answer = RedirectResponse(address, 303)
        # Lax: the browser comes back from another website.
        keep_cookie(answer, request, PROVIDER_COOKIE, begun.text, 600)
        return answer

    async def returned(self, request: Request) -> Response:
        """Sign a browser in that comes back from the provider."""
        begun = Begun.read(cookie_of(request, PROVIDER_COOKIE))
        if self.provider is None or begun is None:
            return self.page(request, 401, "This sign-in was not begun in this browser, or is over. Try again.")
        try:
            given = dict(request.query_params)
            person = await run_in_threadpool(self.provider.person, begun, given, _of_this_server(request, RETURNING))
            account, secret = await run_in_threadpool(
                self.accounts.admit, person, address_of(request), self.settings.oidc_project, browser_of(request)
            )
        except SignInError as refusal:
            answer = self.page(request, 401, str(refusal), following=begun.following)
        else:
            answer = await run_in_threadpool(self.signed_in, request, account, secret, _next(begun.following))
        drop_cookie(answer, request, PROVIDER_COOKIE)
        return answer

    def signed_in(self, request: HTTPConnection, account: AccountRecord, secret: str, following: str) -> Response:
        """Let a browser keep its new sign-in in the place of the one before, and send it where it wanted to go."""
        self.accounts.sign_out(cookie_of(request, COOKIE), address_of(request))
        answer = RedirectResponse(f"{request.scope.get('root_path', '')}/{following}", 303)
        seconds = self.settings.sign_in_hours * 3600
        keep_cookie(answer, request, COOKIE, secret, seconds)
        keep_cookie(answer, request, NAME_COOKIE, quote(account.name), seconds, for_scripts=True)
        drop_cookie(answer, request, FORM_COOKIE)
        return answer

    async def left(self, request: Request) -> Response:
        """Sign out."""
        secret = cookie_of(request, COOKIE)
        if secret and await own_form(request) is None:
            return foreign_form()
        id_token = await run_in_threadpool(self.accounts.sign_out, secret, address_of(request))
        elsewhere = None
        if id_token and self.provider is not None:
            returning = _of_this_server(request, "/sign-in")
            elsewhere = await run_in_threadpool(self.provider.end_address, id_token, returning)
        answer = RedirectResponse(elsewhere or f"{request.scope.get('root_path', '')}/sign-in", 303)
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

    async def chosen(self, request: Request) -> Response:
        """Show another project from now on, on the page that the browser was on."""
        if (form := await own_form(request)) is None:
            return foreign_form()
        answer = RedirectResponse(f"{request.scope.get('root_path', '')}/{_next(form.get('next'))}", 303)
        # What is no project of hers counts as none when it comes back.
        number = str(form.get("project", ""))[:20]
        seconds = self.settings.sign_in_hours * 3600
        keep_cookie(answer, request, PROJECT_COOKIE, quote(number), seconds)
        return answer


def _of_this_server(request: Request, path: str) -> str:
    """An address here, by the name that this server was asked by."""
    return f"{str(request.base_url).rstrip('/')}{path}"
