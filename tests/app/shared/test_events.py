"""How events of pages are connected: what answers, how they wait for each other, and what the browser hears."""

from __future__ import annotations

import gradio as gr
import pytest

from app.server import build_app
from app.shared.components import listing
from app.shared.errors import ServiceError
from app.shared.events import LATEST, MULTIPLE, On, shown, wire
from app.shared.wiring import Services


def answer(event: gr.EventData, *values: object) -> dict[str, object]:
    return {}


def test_each_event_is_answered_where_it_says_and_its_failure_is_told_by_name() -> None:
    with gr.Blocks() as page:
        source, other, typed = listing("list", "find", "act"), gr.HTML(), gr.Textbox()
        events = {"find": On(answer, source), "act": On(answer, other, [typed], LATEST)}
        assert set(wire(source, events, MULTIPLE, "own-")) == set(events)
    made = {str(kind): block for block in page.fns.values() for _, kind in block.targets if kind in events}
    assert {name: (block.trigger_mode, block.inputs, block.outputs) for name, block in made.items()} == {
        "find": ("multiple", [], [source]),
        "act": ("always_last", [typed], [other]),
    }
    told = [block.js for block in page.fns.values() if {kind for _, kind in block.targets} == {"failure"}]
    assert told == ["() => coft.failed('own-find')", "() => coft.failed('own-act')"]


def test_a_refusal_is_one_sentence_that_stays_until_it_is_closed() -> None:
    @shown
    def refused() -> None:
        raise ServiceError("There is no <such> thing; choose another.")

    with pytest.raises(gr.Error) as raised:
        refused()
    assert (raised.value.message, raised.value.duration) == ("There is no &lt;such&gt; thing; choose another.", None)


OF_FORMS = {"change", "select", "input"}
WITHOUT_DATA = OF_FORMS | {"load", "click", "tick", "success", "failure", "then"}


@pytest.fixture(scope="module")
def events(shared: Services) -> list[tuple[str, str, set[str]]]:
    """Name of the handler, trigger mode and kinds of trigger of every event that asks the server."""
    return [
        (getattr(made.fn, "__qualname__", ""), str(made.trigger_mode), {str(kind) for _, kind in made.targets})
        for made in build_app(shared).fns.values()
        if made.fn is not None
    ]


def test_no_change_of_a_form_is_dropped_while_the_one_before_it_is_at_work(events) -> None:
    assert [name for name, mode, kinds in events if kinds & OF_FORMS and mode == "once"] == []


def test_no_event_with_data_waits_for_another_and_is_given_that_ones_data(events) -> None:
    assert [name for name, mode, kinds in events if kinds - WITHOUT_DATA and mode == "always_last"] == []
