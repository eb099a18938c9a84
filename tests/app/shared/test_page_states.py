"""Of an opened page the server keeps what its events changed, and of so many pages at most."""

from __future__ import annotations

import gradio as gr
import pytest

from app.serving.gradio_changes import PageStates


@pytest.fixture
def states():
    with gr.Blocks() as app:
        kept = gr.State([])
        for _ in range(200):
            gr.Textbox("said")
    app.state_session_capacity = 10_000
    return PageStates(app, most=3), kept


def test_a_page_keeps_its_own_state_apart_from_the_others(states):
    pages, kept = states
    pages["one"][kept._id] = ["here"]
    assert pages["one"][kept._id] == ["here"]
    assert pages["two"][kept._id] == []


def test_no_component_is_described_for_a_page_that_is_opened(states):
    pages, _ = states
    page = pages["one"]
    page._update_value_in_config(next(iter(page.blocks_config.blocks)), "other")
    assert list(page.components) == []
    assert page.config_values == {}


def test_the_page_unused_for_longest_begins_again_where_there_are_more_than_are_kept(states):
    pages, kept = states
    for name in ("one", "two", "three"):
        pages[name][kept._id] = [name]
    assert pages["one"][kept._id] == ["one"]
    pages["four"]
    assert "two" not in pages
    assert pages["two"][kept._id] == []
    assert len(pages.session_data) == 3
