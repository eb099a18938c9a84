"""Work on its way to another process and back: what is loaded there already travels by name, everything else whole."""

from __future__ import annotations

import hashlib
import io
import pickle
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from app.hosting.limits import OfferedModels
from app.hosting.memory import MemoryBudget
from app.hosting.model_host import ModelHost
from app.settings import Settings
from app.shared.errors import USER_ERRORS, ServiceError
from app.shared.planning import detector_of
from coft_core.fingerprint import same_digests
from coft_core.model.forced import Room, SharedOut
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import load_model
from coft_core.scorers.base import ToxicityScorer
from coft_core.scorers.classifier import ClassifierScorer
from coft_core.scorers.embedded import EmbeddedScorer
from coft_core.text.detection import SpanDetector
from coft_core.text.rendering import Rendering
from coft_core.text.user_list import UserList

MODELS_HELD = 6
"""Models that a worker holds: an audited one with the experts of its policies."""

PROGRAM = ("app", "coft_core", "db")
SECRETS = frozenset(
    {"database_url", "oidc_client_id", "oidc_client_secret", "oidc_issuer", "signing_key", "ray_address"}
)
"""Settings that a worker needs for nothing."""

OTHER = (
    "Under the name {name!r} a worker finds something else than this computer: the {what} differ; give all of them the "
    "same, or unset COFT_RAY_ADDRESS."
)


class _Packer(pickle.Pickler):
    """Names what every worker has, instead of carrying it along."""

    def persistent_id(self, thing: Any) -> Any:
        """What stands for an object; None carries it along."""
        if isinstance(thing, LanguageModel):
            digests = (thing.weights_digest, thing.tokenizer_digest)
            return "model", thing.name, digests, thing.chat, thing.rendering
        if isinstance(thing, SpanDetector):
            return "detector", thing.masked_families, thing.user_list, thing.version
        if isinstance(thing, EmbeddedScorer | ClassifierScorer):
            return "scorer", thing.name, thing.version
        if isinstance(thing, ModelHost):
            return ("host",)
        # Memory is that of wherever a batch is run.
        return ("room",) if isinstance(thing, SharedOut) else None


class _Unpacker(pickle.Unpickler):
    """Puts in place what a worker has."""

    def __init__(self, data: bytes, bench: Bench) -> None:
        super().__init__(io.BytesIO(data))
        self._bench = bench

    def persistent_load(self, named: Any) -> Any:
        """What is meant."""
        kind, *rest = named
        return getattr(self._bench, kind)(*rest)


def packed(work: Callable[[], Any]) -> bytes:
    """Work as bytes."""
    buffer = io.BytesIO()
    try:
        _Packer(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ServiceError(
            f"This work cannot be given to workers on Ray ({error}); unset COFT_RAY_ADDRESS to run it in one process."
        ) from error
    return buffer.getvalue()


def unpacked(answer: bytes) -> Any:
    """A worker's result; what went wrong there is raised here."""
    succeeded, result = pickle.loads(answer)
    if succeeded:
        return result
    raise result


class Bench:
    """Where a worker works: its models and detectors, as the settings say; it has no store."""

    def __init__(
        self, told: dict[str, Any], threads: int | None = None, loader: Callable[..., LanguageModel] = load_model
    ) -> None:
        """Load nothing yet; ``told`` are settings, see :func:`worker_settings`."""
        if threads is not None:
            torch.set_num_threads(threads)
        self._settings = settings = Settings(**told)
        self._host = ModelHost(
            settings.device, settings.dtype, MODELS_HELD, loader, settings.placement, settings.faster_steps,
            MemoryBudget(settings.kv_memory_mb), OfferedModels(settings.models, settings.served_models),
            settings.served_models,
        )  # fmt: skip

    def greeted(self) -> str:
        """Digest of the program that it runs."""
        return program_digest()

    def done(self, data: bytes) -> bytes:
        """Do packed work; its result, or what went wrong."""
        try:
            return pickle.dumps((True, _Unpacker(data, self).load()()), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            return pickle.dumps((False, sendable(error)))

    def model(self, name: str, digests: tuple[str, str], chat: bool, rendering: Rendering | None) -> LanguageModel:
        """A model, with its prompts rendered as where the work comes from."""
        loaded = self._host.get(name)
        for what, there, here in zip(
            ("weights", "tokenizers"), digests, (loaded.weights_digest, loaded.tokenizer_digest), strict=True
        ):
            if not same_digests(there, here):
                raise ServiceError(OTHER.format(what=what, name=name))
        return replace(loaded, chat=chat, rendering=rendering)

    def detector(self, families: tuple[str, ...], user_list: UserList | None, version: str) -> SpanDetector:
        """A detector."""
        detector = self._detector.adapted(families, user_list)
        if not same_digests(version, detector.version):
            raise ServiceError(OTHER.format(what="detectors", name=self._settings.pipeline))
        return detector

    def scorer(self, name: str, version: str) -> ToxicityScorer:
        """A toxicity scorer."""
        on_gpu = self._settings.device != "cpu" and torch.cuda.is_available()
        scorer = self._host.scorer_on(name, "cuda" if on_gpu else "cpu")
        if scorer.version != version:
            raise ServiceError(OTHER.format(what="scorers", name=name))
        return scorer

    def host(self) -> ModelHost:
        """What owns the models."""
        return self._host

    def room(self) -> Room:
        """Where batches take their memory from."""
        return self._host.memory.room()

    @cached_property
    def _detector(self) -> SpanDetector:
        return detector_of(self._settings)


def sendable(error: Exception) -> Exception:
    """An error as it is where it arrives as it left, and else its words."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        arrived = pickle.loads(pickle.dumps(error))
    except Exception:  # whatever an error's own class does wrong when it is put together again
        arrived = None
    if type(arrived) is type(error) and str(arrived) == str(error):
        return error
    if isinstance(error, USER_ERRORS):
        return ServiceError(str(error))
    return RuntimeError(f"{type(error).__name__}: {error}")


def worker_settings(settings: Settings) -> dict[str, Any]:
    """What a worker is told of the settings."""
    return settings.model_dump(exclude=set(SECRETS))


def program_digest() -> str:
    """Digest of the program's source and of the library that computes: workers must have the same to agree."""
    digest = hashlib.sha256(torch.__version__.encode())
    root = Path(__file__).resolve().parents[2]
    for path in sorted(path for package in PROGRAM for path in (root / package).rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
