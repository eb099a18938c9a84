"""Starting the server: a port that is taken is one sentence, and the running server's jobs are left alone."""

import socket

import pytest

from app.cli import main
from app.server import require_free_port
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


def test_an_address_that_does_not_exist_is_refused():
    with pytest.raises(ServiceError, match="cannot be used"):
        require_free_port(Settings(host="203.0.113.7"))
