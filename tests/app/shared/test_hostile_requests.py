"""Malformed arguments to endpoints: each is refused in a sentence, and none ends in an error that is not known."""

from __future__ import annotations

import math
import tempfile
from contextlib import suppress
from itertools import cycle, product

import gradio as gr
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.audit.service import AuditService
from app.bootstrap import FEATURES
from app.serving.endpoints import callable_of
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import USER_ERRORS, ServiceError
from app.shared.operations import Argument, Operation
from tests.app.accounts.conftest import quick_accounts

ENDPOINTS = [operation for feature in FEATURES for operation in feature.operations if operation.endpoint]
HOSTILE = [
    None, True, -1, 2**62, 2**63, -(2**70), 1.5, 1e308, math.nan, math.inf, "", "x", "\x00", "\ud800", "../passwd", [],
    [None], [[]], ["a", 1], [math.nan], {}, {"a": 1}, {"": None}, [{}], [[-1, 2**70, "gender"]], {"model": None},
    {"seed": 2**80}, {"lam": "nan"}, {"alpha": math.inf}, {"max_new_tokens": -1}, {"parameters": [1]},
    {"calibration_id": "x"}, {"masked_families": 5}, {"whitelist": {"a": 1}},
]  # fmt: skip
WORKING = ("calibrate", "evaluate", "run_to_end", "tune", "compare_set", "run_batch", "calibrate_coefficients")
"""Endpoints that begin long work, whose arguments are read here, and that are not called."""

NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def usual(operation: Operation) -> list[object]:
    """Arguments of the kind that an operation takes."""
    plain = {int: 1, str: "x", float: 0.5, bool: True}
    return [
        plain.get(argument.plain, [] if "list" in str(argument.plain) else {})
        if argument.required
        else argument.plain_default
        for argument in operation.arguments
    ]


ARGUMENTS = [*{str(argument.annotation): argument for item in ENDPOINTS for argument in item.arguments}.values()]
"""One argument of each type."""


@given(argument=st.sampled_from(ARGUMENTS), value=NESTED)
@settings(max_examples=100)
def test_any_json_is_read_as_an_argument_or_refused_in_a_sentence(argument: Argument, value: object) -> None:
    with suppress(*USER_ERRORS):
        argument.read(value)


def test_a_number_that_nothing_can_keep_is_refused_by_the_argument_and_the_place() -> None:
    for argument, value in product(ARGUMENTS, (2**63, -(2**63) - 1, math.nan, math.inf)):
        for given_value, place in ((value, ""), ([0, {"deep": value}], ", 1, deep")):
            with pytest.raises(ServiceError, match=f"{argument.name}{place} "):
                argument.read(given_value)


def test_depth_without_end_is_refused() -> None:
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(ServiceError, match="more than 32 deep"):
        ENDPOINTS[0].arguments[0].read(deep)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_no_malformed_argument_ends_in_an_error_that_is_not_known(shared, tmp_path, monkeypatch, every) -> None:
    """A quarter of the values at each place, another quarter at the next one; at night each one."""
    # To lay out a page or to hash a password takes long, and reads nothing of the arguments.
    monkeypatch.setattr("app.report.service.pdf_of", lambda *_: b"")
    quick_accounts(shared)
    view = shared[AuditService].start(StartAudit("he said", AuditSettings(model="tiny", max_new_tokens=3), ()))
    list(shared[AuditService].run(view.session_id))
    folder, unknown, first = tempfile.TemporaryDirectory(dir=tmp_path), [], cycle(range(every))
    for operation in ENDPOINTS:
        call = callable_of(operation, shared, folder)
        for place in range(0 if operation.name in WORKING else len(operation.arguments)):
            for value in HOSTILE[next(first) :: every]:
                values = usual(operation)
                values[place] = value
                try:
                    call(*values)
                except gr.Error:
                    continue
                except Exception as error:
                    unknown.append((operation.name, place, repr(value)[:60], repr(error)[:120]))
    assert unknown == []
