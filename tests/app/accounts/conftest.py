"""One served application with accounts, and a program of each role."""

from contextlib import contextmanager
from dataclasses import dataclass

import gradio as gr
import httpx
import pytest
from argon2 import PasswordHasher

from app.accounts.gate import AccountGate
from app.accounts.service import AccountService
from app.bootstrap import services
from app.server import build_app, finish_agents, launch_options
from app.settings import Settings
from app.shared.wiring import Services
from db.accounts import ROLES
from tests.conftest import free_port, load_tiny

PASSWORD = "four words nobody guesses"
QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
"""The parameters of the program take a tenth of a second for each password."""


def quick_accounts(wired):
    """The program's service, with hashes that are computed at once."""
    service = AccountService(wired, QUICK)
    wired._built[AccountService] = service
    return service


@dataclass(frozen=True)
class Served:
    """A server with accounts."""

    url: str
    wired: Services
    blocks: gr.Blocks
    tokens: dict[str, str]

    def client(self, role=None):
        """A program of a role, or one without an account."""
        headers = {} if role is None else {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.Client(base_url=self.url, timeout=60, headers=headers)


@contextmanager
def serving(folder):
    """A server with accounts on a store of its own."""
    settings = Settings(
        database_url=f"sqlite:///{folder / 'audits.sqlite3'}", pipeline="none", accounts="on", completions="coft",
        model="tiny", idle_minutes=60,
    )  # fmt: skip
    with services(settings, owns_store=True, loader=load_tiny) as wired:
        accounts = quick_accounts(wired)
        for role in ROLES:
            accounts.add(f"the {role}", role, PASSWORD)
        tokens = {role: accounts.add_token(f"the {role}", "tests", 1).token for role in ROLES}
        app = build_app(wired)
        _, url, _ = app.launch(
            prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", server_port=free_port(),
            **launch_options(wired, mcp=True),
        )  # fmt: skip
        finish_agents(app)
        wired[AccountGate].let_agents_in()
        yield Served(url.rstrip("/"), wired, app, tokens)
        app.close(verbose=False)


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """One server for the tests of a process; what they add stays."""
    with serving(tmp_path_factory.mktemp("accounts")) as made:
        yield made
