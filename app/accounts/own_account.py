"""What the owner of an account does with it in a browser: see and end sign-ins, change her password; no script runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from app.accounts.attempts import SignInError
from app.accounts.forms import COOKIE, POLICY, address_of, browser_of, cookie_of, foreign_form, form_token, own_form
from app.accounts.operations import browser_words
from app.accounts.service import AccountService
from app.accounts.sign_in import OWN_ACCOUNT, SignInPages
from app.shared.errors import ServiceError
from app.shared.markup import from_file
from app.shared.visitors import visitor_asking
from db.accounts import AccountRecord
from db.types import NotFoundError, utc_now

RECENT = timedelta(minutes=15)
"""How long ago somebody whom a provider signs in may have signed in, where others give their password again."""
DONE = {
    "password": "Your password is changed, and every other browser is signed out.",
    "one": "That browser is signed out.",
    "others": "Every other browser is signed out.",
}


@dataclass(frozen=True)
class OwnAccountPages:
    """Answers what owners of accounts ask about their own."""

    accounts: AccountService
    pages: SignInPages

    @property
    def routes(self) -> list[BaseRoute]:
        """Where browsers ask."""
        return [
            Route(f"/{OWN_ACCOUNT}", self.shown, methods=["GET"]),
            Route(f"/{OWN_ACCOUNT}/end", self.ended, methods=["POST"]),
            Route("/account/password", self.changed, methods=["POST"]),
        ]

    def page(self, request: Request, status: int = 200, message: str = "", done: str = "") -> Response:
        """The page."""
        account, secret = _account(request), cookie_of(request, COOKIE)
        present = self.accounts.held(secret)
        text = from_file(
            "accounts/own_account.html",
            account=account,
            sign_ins=self.accounts.sign_ins(account),
            present=None if present is None else present.id,
            form=form_token(secret),
            browser=browser_words,
            message=message,
            done=done,
            minutes=int(RECENT.total_seconds() // 60),
        )
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        return Response(str(text), status, headers, "text/html")

    async def shown(self, request: Request) -> Response:
        """Show the page."""
        done = DONE.get(request.query_params.get("done", ""), "")
        return await run_in_threadpool(self.page, request, 200, "", done)

    async def ended(self, request: Request) -> Response:
        """End one sign-in, or all others."""
        account, secret = _account(request), cookie_of(request, COOKIE)
        if (form := await own_form(request)) is None:
            return foreign_form()
        asked = str(form.get("number", ""))
        number = int(asked) if asked.isdecimal() and len(asked) < 10 else None
        try:
            await run_in_threadpool(self._confirm, account, secret, str(form.get("password", "")), address_of(request))
            await run_in_threadpool(self.accounts.end_sign_ins, account, number, secret, address_of(request))
        except (ServiceError, NotFoundError) as refusal:
            return await run_in_threadpool(self.page, request, _status(refusal), str(refusal))
        done = "one" if number is not None else "others"
        return RedirectResponse(f"{request.scope.get('root_path', '')}/{OWN_ACCOUNT}?done={done}", 303)

    async def changed(self, request: Request) -> Response:
        """Change the password."""
        account, secret = _account(request), cookie_of(request, COOKIE)
        if (form := await own_form(request)) is None:
            return foreign_form()
        try:
            await run_in_threadpool(self._confirm, account, secret, str(form.get("password", "")), address_of(request))
            anew = await run_in_threadpool(
                self.accounts.change_own_password, account, str(form.get("chosen", "")), address_of(request),
                browser_of(request),
            )  # fmt: skip
        except ServiceError as refusal:
            return await run_in_threadpool(self.page, request, _status(refusal), str(refusal))
        return await run_in_threadpool(self.pages.signed_in, request, account, anew, f"{OWN_ACCOUNT}?done=password")

    def _confirm(self, account: AccountRecord, secret: str, password: str, address: str) -> None:
        """Require the password again, or a recent sign-in by the provider."""
        if account.issuer is None:
            self.accounts.confirm(account, password, address)
            return
        held = self.accounts.held(secret)
        if held is None or utc_now() - held.created_at > RECENT:
            raise SignInError("You signed in too long ago for this. Sign out, sign in again, and come back here.")


def _account(request: Request) -> AccountRecord:
    account = visitor_asking(request).account
    assert account is not None
    return account


def _status(refusal: Exception) -> int:
    if isinstance(refusal, SignInError):
        return 429 if refusal.throttled else 403
    return 404 if isinstance(refusal, NotFoundError) else 422
