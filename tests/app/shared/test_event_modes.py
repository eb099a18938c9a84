"""How the pages' events wait for each other; ``docs/architecture.md`` says why."""

from __future__ import annotations

import pytest

from app.server import build_app
from app.shared.wiring import Services

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
