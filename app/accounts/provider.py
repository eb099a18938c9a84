"""Signing in by an OpenID provider: the authorization code flow with state, nonce and PKCE (OpenID Connect Core 1.0).

Authlib makes the requests and checks the claims of the token that says who somebody is, joserfc its signature. Nothing
is kept on the server between the two halves of a sign-in: state, nonce and verifier stand in a cookie of the browser
that began it, so that any server of a store can finish it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import OAuth2Client

# Which of the two packages Authlib asks with: errors of the other one are none of its errors.
from authlib.integrations.httpx_client._compat import httpx2
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from app.accounts.attempts import SignInError
from app.accounts.service import account_name, role_named
from app.settings import Settings
from app.shared.errors import ServiceError
from db.accounts import ROLES, Role

ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]
"""Signatures with a provider's own key; those with a shared secret, and none at all, are refused."""
SCOPE = "openid profile email"
SECONDS = 10.0
LEEWAY_SECONDS = 60
NAMES = ("preferred_username", "email", "name")
"""Claims that an account is called by, the first that is there."""
ANYBODY = "*"


@dataclass(frozen=True, slots=True)
class Begun:
    """The first half of a sign-in, as the browser keeps it."""

    state: str
    nonce: str
    verifier: str
    following: str

    @classmethod
    def new(cls, following: str) -> Begun:
        """A new one, of random values."""
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(64), following)

    @property
    def text(self) -> str:
        """As a cookie holds it."""
        parts = [self.state, self.nonce, self.verifier, self.following]
        return json.dumps(parts).encode().hex()

    @classmethod
    def read(cls, text: str) -> Begun | None:
        """From a cookie; None where it holds none."""
        try:
            parts = json.loads(bytes.fromhex(text))
        except ValueError:
            return None
        whole = isinstance(parts, list) and len(parts) == 4 and all(isinstance(part, str) for part in parts)
        return cls(*parts) if whole else None


@dataclass(frozen=True, slots=True)
class Person:
    """Whom a provider vouches for."""

    issuer: str
    subject: str
    name: str
    role: Role
    id_token: str = ""


class Provider:
    """One OpenID provider, by its settings."""

    def __init__(self, settings: Settings) -> None:
        """Read the settings; the provider is asked when somebody signs in."""
        self.issuer = settings.oidc_issuer.strip()
        self.label = settings.oidc_label
        self._client_id, self._secret = settings.oidc_client_id, settings.oidc_client_secret
        self._claim = settings.oidc_role_claim
        self._roles = _roles(settings.oidc_roles)
        _require_secure(self.issuer)
        if not self._client_id:
            raise ServiceError("COFT_OIDC_ISSUER is set and COFT_OIDC_CLIENT_ID is not; name the client.")

    def address(self, begun: Begun, returning: str) -> str:
        """Where the browser is sent to."""
        with self._client(returning) as client:
            described = self._described(client)
            address, _ = client.create_authorization_url(
                str(described["authorization_endpoint"]),
                state=begun.state,
                nonce=begun.nonce,
                code_verifier=begun.verifier,
            )
        return str(address)

    def person(self, begun: Begun, given: Mapping[str, str], returning: str) -> Person:
        """Whom the provider vouches for."""
        if not secrets.compare_digest(given.get("state", "").encode(), begun.state.encode()):
            raise SignInError("This sign-in was not begun in this browser, or is over. Try again.")
        if given.get("iss", self.issuer) != self.issuer:
            raise SignInError("Another provider has answered than was asked. Try again.")
        if "code" not in given:
            said = given.get("error_description") or given.get("error") or "no reason was given"
            raise SignInError(f"{self.label} has not signed you in ({said:.200}).")
        with self._client(returning) as client:
            described = self._described(client)
            try:
                token = client.fetch_token(
                    str(described["token_endpoint"]), code=given["code"], code_verifier=begun.verifier
                )
            except (AuthlibBaseError, httpx2.HTTPError, ValueError) as error:
                raise SignInError(f"{self.label} did not confirm the sign-in. Try again.") from error
            return self._vouched(token, self._json(client, str(described["jwks_uri"])), begun)

    def end_address(self, id_token: str, returning: str) -> str | None:
        """Where a browser is sent to be signed out at the provider too (OpenID Connect RP-Initiated Logout 1.0)."""
        try:
            with self._client(returning) as client:
                ending = str(self._described(client).get("end_session_endpoint") or "")
            _require_secure(ending or self.issuer)
        except (SignInError, ServiceError):
            return None
        told = {"id_token_hint": id_token, "client_id": self._client_id, "post_logout_redirect_uri": returning}
        return f"{ending}{'&' if '?' in ending else '?'}{urlencode(told)}" if ending else None

    def _vouched(self, token: Mapping[str, Any], keys: Any, begun: Begun) -> Person:
        try:
            read = jwt.decode(str(token.get("id_token", "")), KeySet.import_key_set(keys), algorithms=ALGORITHMS)
            wanted = {
                "iss": {"essential": True, "value": self.issuer},
                "aud": {"essential": True, "value": self._client_id},
            }
            known = {"nonce": begun.nonce, "client_id": self._client_id, "access_token": token.get("access_token")}
            claims = CodeIDToken(read.claims, read.header, wanted, known)
            claims.validate(leeway=LEEWAY_SECONDS)
        except (JoseError, AuthlibBaseError, ValueError, KeyError, TypeError) as error:
            raise SignInError(f"What {self.label} says of you cannot be trusted: its token does not hold.") from error
        named = next((str(claims[name]) for name in NAMES if claims.get(name)), "")
        try:
            role = self._role(claims)
            return Person(self.issuer, str(claims["sub"]), account_name(named), role, str(token["id_token"]))
        except ServiceError as error:
            raise SignInError(str(error)) from error

    def _role(self, claims: Mapping[str, Any]) -> Role:
        """The highest role that follows from what the claim says."""
        value = claims.get(self._claim) if self._claim else None
        values = {str(one) for one in value} if isinstance(value, list) else {str(value)} if value else set()
        roles = [role for said, role in self._roles if said == ANYBODY or said in values]
        if not roles:
            raise ServiceError("You are known, and have no role on this server. Ask one of its admins.")
        return max(roles, key=ROLES.index)

    def _client(self, returning: str) -> OAuth2Client:
        return OAuth2Client(
            self._client_id, self._secret or None, scope=SCOPE, redirect_uri=returning, code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic" if self._secret else "none", timeout=SECONDS,
        )  # fmt: skip

    def _described(self, client: OAuth2Client) -> Mapping[str, Any]:
        described = self._json(client, f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        needed = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        if (
            not isinstance(described, dict)
            or described.get("issuer") != self.issuer
            or not all(map(described.get, needed))
        ):
            raise SignInError(f"{self.label} does not describe itself as the provider that is set; tell an admin.")
        return described

    def _json(self, client: OAuth2Client, address: str) -> Any:
        try:
            _require_secure(address)
            answer = client.request("GET", address, withhold_token=True)
            answer.raise_for_status()
            return answer.json()
        except (httpx2.HTTPError, ValueError, ServiceError) as error:
            raise SignInError(f"{self.label} cannot be asked at the moment. Try again later.") from error


def _roles(text: str) -> tuple[tuple[str, Role], ...]:
    """What a claim says, and the role that follows."""
    parts = [part.strip().rpartition("=") for part in text.split(",") if part.strip()]
    if not parts or not all(said.strip() for said, _, _ in parts):
        raise ServiceError(
            f"COFT_OIDC_ROLES is {text!r:.100}; write what the claim says and the role, as in "
            "audit-leads=lead,*=viewer, where * is anybody."
        )
    return tuple((said.strip(), role_named(role.strip())) for said, _, role in parts)


def _require_secure(address: str) -> None:
    """Refuse an address whose answers somebody on the way could change."""
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")):
        raise ServiceError(f"The OpenID provider's address {address!r:.200} does not begin with https://.")
