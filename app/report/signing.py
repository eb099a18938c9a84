"""Signatures of evidence bundles: who keeps the key can make one, and whoever has the public half can check it."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from app.report.document import canonical
from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.wiring import Services
from db.database import store_folder

KEY_FILE = "signing-key.pem"
PUBLIC_KEY_FILE = "public-key.pem"
ALGORITHM = "ed25519"
SIGNATURES = "signatures"


class Signer:
    """Signs manifests with the key of this store, which is made at the first start and never leaves its file."""

    def __init__(self, path: Path) -> None:
        """Read the key, or make one."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                _make(path)
            key = load_pem_private_key(path.read_bytes(), None)
        except OSError as error:
            raise ServiceError(
                f"The signing key {path} can be neither read nor made ({error.strerror}); give this user its folder, "
                "or name another file in COFT_SIGNING_KEY."
            ) from error
        except (ValueError, TypeError) as error:
            raise ServiceError(
                f"The file {path} holds no Ed25519 key in PEM without a password; put the key back from a backup."
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ServiceError(f"The file {path} holds another kind of key than Ed25519; put the right one there.")
        self._key = key

    @classmethod
    def wired(cls, services: Services) -> Signer:
        """The key that the settings name; else the one beside the store."""
        return cls(key_file(services.settings))

    @property
    def public_key(self) -> str:
        """The public half as PEM text, to be published."""
        form = PublicFormat.SubjectPublicKeyInfo
        return self._key.public_key().public_bytes(Encoding.PEM, form).decode("ascii")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public half, by which people compare keys."""
        return fingerprint_of(self._key.public_key())

    @property
    def routes(self) -> list[Route]:
        """Where the public half is had as a file; a server that serves it has made its key."""
        return [Route(f"/{PUBLIC_KEY_FILE}", self.answer)]

    def answer(self, request: Request) -> Response:
        """The public half."""
        return PlainTextResponse(self.public_key, media_type="application/x-pem-file")

    def sign(self, manifest: Mapping[str, Any]) -> dict[str, str]:
        """The signature of a manifest, as the manifest lists it."""
        return {
            "algorithm": ALGORITHM,
            "public_key": _text(_raw(self._key.public_key())),
            "signature": _text(self._key.sign(signed_content(manifest))),
        }


def key_file(settings: Settings) -> Path:
    """Where the signing key of a server is."""
    return Path(settings.signing_key) if settings.signing_key else store_folder(settings.database_url) / KEY_FILE


def _make(path: Path) -> None:
    """Write a new key; of two processes that do so at once, one has its key kept."""
    made = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(made)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        # Another process was first, unless it is the draft that stands in the way; reading the key tells.
        pass
    finally:
        draft.unlink(missing_ok=True)


def signed_content(manifest: Mapping[str, Any]) -> bytes:
    """What a signature is of: the manifest in canonical JSON, with an empty list in the signatures' place."""
    return canonical({**manifest, SIGNATURES: []}).encode("ascii")


def signature_holds(manifest: Mapping[str, Any], listed: Any) -> Ed25519PublicKey | None:
    """The key by which a listed signature is of a manifest; None where it is not, or is no signature."""
    try:
        if listed["algorithm"] != ALGORITHM:
            return None
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(listed["public_key"], validate=True))
        key.verify(base64.b64decode(listed["signature"], validate=True), signed_content(manifest))
    except (KeyError, TypeError, ValueError, InvalidSignature):
        return None
    return key


def fingerprint_of(key: Ed25519PublicKey) -> str:
    """SHA-256 of a public key's 32 bytes, in hexadecimal digits, by which people compare keys."""
    return hashlib.sha256(_raw(key)).hexdigest()


def trusted_keys(path: Path) -> dict[str, str]:
    """The names of trusted keys by fingerprint; each key is named after its file."""
    files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
    if not files:
        raise ServiceError(f"The folder {path} has no public key; put each key that you trust there as a .pem file.")
    return {fingerprint_of(read_public_key(file)): file.stem for file in files}


def read_public_key(path: Path) -> Ed25519PublicKey:
    """A public key from a PEM file."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise ServiceError(f"The key {path} cannot be read ({error.strerror}); check the path.") from error
    except ValueError as error:
        raise ServiceError(f"{path} holds no public key in PEM; ask the auditor for it.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ServiceError(f"{path} holds another kind of key than Ed25519; ask the auditor for the right one.")
    return key


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
