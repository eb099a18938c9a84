"""Fixtures that many tests share."""

import functools
import gc
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import hypothesis
import pytest
import torch
from sqlalchemy import Engine
from sqlalchemy.pool import ConnectionPoolEntry

import db.database
import db.schema
from app.bootstrap import services
from app.report.verify.run import BundleVerifier
from app.settings import Settings
from app.shared.calibrations import CalibrationFields, fields_of
from app.shared.wiring import Services
from coft_core.conformal import informative
from coft_core.conformal.calibration import Calibration
from coft_core.decode.captured import prepare_model
from coft_core.fingerprint import Fingerprint
from coft_core.model.compiled import NOT_PREPARED, path_of
from coft_core.model.fake import tiny_model
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import DEMO, load_model
from coft_core.model.loading import LoadingPhase
from coft_core.text.detection import SpanDetector

pytest_plugins = ["tests.browser", "tests.postgresql"]

# A busy machine is no reason to fail.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")

TOY_FINGERPRINT = Fingerprint(
    model="toy",
    revision="main",
    weights="w1",
    tokenizer="t1",
    dtype="float32",
    chat_template="none",
    lam=0.6,
    temperature=1.0,
    top_p=0.9,
    top_k=0,
    mask_mode="hard",
    sentinel="<mask>",
    detector="lexicon 1",
    estimator="hierarchical",
    source="reference",
)
"""A complete fingerprint of nothing in particular."""


class PlainDetector:
    """Finds nothing; keeps tests independent of the lexicons."""

    version = "none"

    def detect(self, text: str) -> list[object]:
        return []


def pytest_collection_finish() -> None:
    """What was imported stays to the end: the program's own collections of garbage need not look through it."""
    gc.collect()
    gc.freeze()


@functools.cache
def the_tiny_model() -> LanguageModel:
    """A tiny model that nothing changes, so that it is made, traced and measured once in a process."""
    return tiny_model()


def load_tiny(name: str, **_: object) -> LanguageModel:
    """A loader that gives the same tiny model whatever the name."""
    return the_tiny_model()


def verifier(settings: Settings, loader: Callable[..., LanguageModel] | None = None) -> BundleVerifier:
    """What verifies reports from elsewhere, without a store."""
    return Services(settings, (), ExitStack(), loader=loader)[BundleVerifier]


@pytest.fixture(scope="session", autouse=True)
def detectors_built_once() -> Iterator[None]:
    """One span detector for each choice of pipeline and families.

    Building it takes nearly all of the time of opening the program, and it never changes afterwards. Stores, services
    and models stay a test's own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.shared.planning.SpanDetector", functools.cache(SpanDetector))
        yield


@pytest.fixture(scope="session", autouse=True)
def embedded_model_loaded_once() -> Iterator[None]:
    """The embedded model is read, traced and measured once in a process; nothing changes its weights afterwards."""
    kept: dict[str, LanguageModel] = {}

    def loaded(name: str, progress: Callable[[LoadingPhase], None], **options: object) -> LanguageModel:
        if name != DEMO:
            return load_model(name, progress=progress, **options)
        key = repr(sorted(options.items()))
        if key not in kept:
            kept[key] = load_model(name, progress=progress, **options)
        return kept[key]

    def prepared(model: LanguageModel) -> None:
        if path_of(model) is NOT_PREPARED:
            prepare_model(model)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.hosting.model_host.load_model", loaded)
        patch.setattr("app.hosting.model_host.prepare_model", prepared)
        yield


@pytest.fixture(scope="session", autouse=True)
def embedded_calibration_read_once() -> Iterator[None]:
    """The calibration that comes with the program is read, and its coverage counted, once in a process."""
    kept: dict[Path, Calibration] = {}
    listed: dict[int, CalibrationFields] = {}

    def read(path: Path) -> Calibration:
        if path not in kept:
            kept[path] = Calibration.load(path)
            listed[id(kept[path])] = fields_of(kept[path])
        return kept[path]

    def fields(calibration: Calibration) -> CalibrationFields:
        return listed.get(id(calibration)) or fields_of(calibration)

    with pytest.MonkeyPatch.context() as patch:
        once = SimpleNamespace(load=read, from_bytes=Calibration.from_bytes)
        patch.setattr("app.shared.calibrations.Calibration", once)
        patch.setattr("app.shared.calibrations.fields_of", fields)
        yield


@pytest.fixture(scope="session", autouse=True)
def stores_made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A new store is a copy of one that was made: to make its tables costs twenty times as much as to copy it.

    The tests of the store itself, in ``tests/db``, make theirs; so do programs that tests start.
    """
    made = tmp_path_factory.mktemp("made") / "audits.sqlite3"
    db.database.Database(f"sqlite:///{made}").open().close()
    make = db.schema.make_tables

    def copied_or_made(engine: Engine) -> None:
        path = Path(engine.url.database or "")
        if engine.dialect.name == "sqlite" and not path.stat().st_size:
            shutil.copyfile(made, path)
        else:
            make(engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("db.schema.make_tables", copied_or_made)
        yield


SET_PRAGMAS = db.database._set_pragmas


@pytest.fixture(scope="session", autouse=True)
def stores_wait_for_no_disk() -> Iterator[None]:
    """SQLite does not wait for the disk after each step: only a power cut would lose what it has not written yet."""

    def without_waiting(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        SET_PRAGMAS(connection, entry)
        connection.execute("PRAGMA synchronous=OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("db.database._set_pragmas", without_waiting)
        yield


@pytest.fixture
def stores_as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite waits for the disk as it does in use."""
    monkeypatch.setattr("db.database._set_pragmas", SET_PRAGMAS)


@pytest.fixture(scope="session", autouse=True)
def one_thread_for_each_program() -> Iterator[None]:
    """The programs that tests start have one thread for sums too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(autouse=True)
def one_thread_for_each_model() -> Iterator[None]:
    """Small models gain nothing from a second thread, and threads that wait for each other on a busy core cost much.

    Measurements set the number for their whole process; left so by their tests, all tests after them took several times
    as long.
    """
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Read the certificates of all authorities once; Gradio's client makes an HTTP client for each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", functools.cache(httpx.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def uploads_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where Gradio keeps uploaded files, by their content; a program that ends removes its own there.

    Tests run side by side in several processes, some of which upload the same files.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path_factory.mktemp("uploads")))
        yield


@contextmanager
def flat_sets_say_something() -> Iterator[None]:
    """Random models over 258 bytes are flat, so that most of their sets would say nothing; here they say something."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(informative, "LARGE", 300 / 258)
        patch.setattr(informative, "MANY", 100 / 258)
        yield


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(database_url=f"sqlite:///{tmp_path / 'audits.sqlite3'}", pipeline="none")


@pytest.fixture
def wired(settings: Settings) -> Iterator[Services]:
    """All services on a tiny random model and a store of their own."""
    with services(settings, loader=load_tiny) as opened:
        yield opened


def prompt_set_csv(rows: int = 40) -> str:
    """A well-formed prompt set."""
    lines = ["prompt,reference,context"]
    lines += [f"He said number {i} to the nurse,and she wrote {i} down,{i // 2}" for i in range(rows)]
    return "\n".join(lines) + "\n"
