"""Starting the server: a port that is taken is one sentence, and the running server's jobs are left alone."""

import signal
import socket
from types import SimpleNamespace

import pytest

from app.cli import main
from app.server import require_free_port, serve
from app.serving.monitoring import Monitor
from app.settings import Settings
from app.shared.errors import ServiceError
from tests.conftest import free_port


@pytest.fixture
def taken():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_taken_port_is_refused_and_a_free_one_is_not(taken):
    with pytest.raises(ServiceError, match=f"Port {taken} on 127.0.0.1 cannot be used"):
        require_free_port(Settings(port=taken))
    require_free_port(Settings(port=free_port()))


def test_serving_beside_another_server_opens_no_store(taken, tmp_path, monkeypatch, capsys):
    store = tmp_path / "store.sqlite3"
    monkeypatch.setenv("COFT_DATABASE_URL", f"sqlite:///{store}")
    assert main(["serve", "--port", str(taken)]) == 1
    assert "cannot be used" in capsys.readouterr().err
    assert not store.exists()


class Stopping:
    """Sends the signal to end while it is taken apart."""

    def __del__(self):
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_falls_into_a_destructor_ends_the_server(wired, settings, monkeypatch):
    usual = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    closed = []
    page = SimpleNamespace(launch=lambda **_: None, close=lambda **_: closed.append(True))
    monkeypatch.setattr("app.server.build_app", lambda _: page)
    for name in ("end_within", "begin_log"):
        monkeypatch.setattr(f"app.server.{name}", lambda _: None)
    monkeypatch.setattr("app.server._keep_what_is_loaded", lambda: None)
    monkeypatch.setattr("app.server._has_screen", lambda: True)
    # The page is opened when the server has begun.
    monkeypatch.setattr("webbrowser.open", lambda _: Stopping() and None)
    try:
        serve(wired, settings, open_page=True)
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    assert closed
    assert wired[Monitor].ready(None).status_code == 503
