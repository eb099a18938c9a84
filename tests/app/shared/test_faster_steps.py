"""A model's steps are prepared when the settings say so, while it is loaded, and its note says how they run."""

from app.shared.model_host import ModelHost
from coft_core.model.fake import tiny_model
from coft_core.model.loading import LoadingPhase


def host(faster_steps):
    return ModelHost(loader=lambda name, **_: tiny_model(), faster_steps=faster_steps)


def test_steps_that_are_asked_for_are_prepared_as_the_last_phase_of_loading_and_told():
    own = host("on")
    assert list(own.loading("m"))[-1] is LoadingPhase.WARM_UP
    assert "Computes in float32, steps traced." in own.describe("m").details


def test_nothing_is_prepared_where_that_is_switched_off():
    assert "Computes in float32. " in host("off").describe("m").details
