"""What a docstring says is what programs and agents are told."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Annotated

import gradio as gr
import pytest
from gradio.utils import get_function_description

from app.cli import main
from app.server import finish_agents
from app.serving.endpoints import callable_of
from app.shared.errors import ServiceError
from app.shared.operations import OnTerminal, operation, text_of


def weigh(wired: int, prompt: str, settings: dict[str, float] | None = None) -> float:
    """Weigh a prompt.

    A second paragraph.

    Args:
        prompt: The text, which goes on
            for two lines: with a colon.
        settings: Numbers.

    Returns:
        Its weight,
        in grams.
    """
    return wired * len(prompt) + sum((settings or {}).values())


def test_a_docstring_is_taken_apart_and_lines_that_go_on_are_joined():
    text = text_of(weigh)
    assert text.description == "Weigh a prompt. A second paragraph."
    assert text.arguments == {"prompt": "The text, which goes on for two lines: with a colon.", "settings": "Numbers."}
    assert text.summary == "Weigh a prompt. A second paragraph. Returns: Its weight, in grams."


def test_what_gradio_calls_does_the_same_and_reads_the_same_to_it():
    call = callable_of(operation()(weigh), 2)
    assert call("abc", {"more": 1.0}) == 7.0
    assert text_of(call) == text_of(weigh)
    description, arguments, returns = get_function_description(call)
    assert description == text_of(weigh).description
    assert arguments == text_of(weigh).arguments
    assert returns == ["Its weight, in grams."]


def test_what_is_for_the_terminal_is_not_offered_to_programs():
    def read(wired: int, name: str, out: Annotated[str, OnTerminal()] = "none") -> str:
        """Read."""
        return f"{name} {out}"

    call = callable_of(operation()(read), 1)
    assert list(inspect.signature(call).parameters) == ["name"]
    assert call("a") == "a none"


def test_without_the_package_agents_are_refused_before_a_store_is_opened(tmp_path, monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "mcp" else found(name, *rest))
    store = tmp_path / "store.sqlite3"
    monkeypatch.setenv("COFT_DATABASE_URL", f"sqlite:///{store}")
    assert main(["serve", "--mcp"]) == 1
    assert "The MCP server needs the package 'mcp'" in capsys.readouterr().err
    monkeypatch.setenv("COFT_MCP", "1")
    assert main(["serve"]) == 1
    assert "pip install" in capsys.readouterr().err
    assert not store.exists()


def test_a_server_for_agents_that_gradio_could_not_start_is_refused():
    with gr.Blocks() as app:
        pass
    app.mcp_error = "no such thing"
    with pytest.raises(ServiceError, match="could not be started \\(no such thing\\)"):
        finish_agents(app)
