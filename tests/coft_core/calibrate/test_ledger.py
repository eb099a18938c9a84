from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import coft_core as cc
from coft_core.calibrate.ledger import LedgerPhase
from tests.conftest import TOY_FINGERPRINT

entries = st.dictionaries(
    st.tuples(st.sampled_from(["reference", "rollout/1", "verification"]), st.integers(1, 10**6)),
    st.dictionaries(
        st.sampled_from(["support", "truth", "tokens"]),
        arrays.arrays(
            st.sampled_from([np.dtype(np.float32), np.dtype(np.int32)]),
            arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
            elements={"min_value": -100, "max_value": 100},
        ),
        min_size=1,
    ),
    max_size=8,
)


def filled(found, key="k"):
    ledger = cc.MemoryLedger()
    ledger.bind(key)
    for (phase, number), entry in found.items():
        ledger.put_many(phase, {number: entry})
    return ledger


@settings(derandomize=True, deadline=None, max_examples=20)
@given(found=entries)
def test_bytes_give_back_every_array(found):
    original = filled(found)
    copy = cc.MemoryLedger.from_bytes(original.to_bytes())
    assert (len(copy), copy.key) == (len(found), "k")
    for (phase, number), entry in found.items():
        own = copy.get_many(phase, [number, 0])
        assert set(own) == {number}
        assert set(own[number]) == set(entry)
        for name, array in entry.items():
            assert own[number][name].dtype == array.dtype
            np.testing.assert_array_equal(own[number][name], array)


def small():
    return filled({("reference", 3): {"support": np.ones((2, 1, 1), dtype=np.float32)}})


def test_other_data_truncations_other_versions_and_entries_that_cannot_belong_are_refused():
    for data in (b"", b"no ledger", b"PK\x03\x04"):
        with pytest.raises(cc.LedgerMismatchError, match="damaged"):
            cc.MemoryLedger.from_bytes(data)
    data = small().to_bytes()
    for length in range(0, len(data), 11):
        with pytest.raises(cc.LedgerMismatchError):
            cc.MemoryLedger.from_bytes(data[:length])
    with np.load(io.BytesIO(small().to_bytes())) as archive:
        parts = {name: archive[name] for name in archive.files}
    header = json.loads(parts["header"].tobytes())
    for change in (
        {"header": np.frombuffer(json.dumps({**header, "version": 9}).encode(), dtype=np.uint8)},
        {"data0": np.ones(5, dtype=np.float32)},
        {"data0": np.array([print, print], dtype=object)},
    ):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{**parts, **change})
        with pytest.raises(cc.LedgerMismatchError):
            cc.MemoryLedger.from_bytes(buffer.getvalue())
    for entry in (
        {"support": np.zeros((3, 1, 1))}, {"support": np.zeros((2, 1))}, {"other": np.zeros((2, 1, 1))},
        {"support": np.zeros((2, 1, 1)), "other": np.zeros(1)},
    ):  # fmt: skip
        ledger = filled({("reference", 7): entry})
        phase = LedgerPhase(ledger, "reference", (5, 7))
        with pytest.raises(cc.LedgerMismatchError, match="example 7 in the phase 'reference'"):
            phase.completed({"support": ((4, 1, 1), (2, 1, 1))}, list, list, print)


def test_first_calibration_gives_the_key_which_changes_with_all_that_results_depend_on():
    ledger = cc.MemoryLedger()
    assert ledger.key == ""
    ledger.bind("a")
    ledger.bind("a")
    with pytest.raises(cc.LedgerMismatchError):
        ledger.bind("b")
    with pytest.raises(cc.LedgerMismatchError):
        cc.MemoryLedger.from_bytes(ledger.to_bytes()).bind("b")
    examples = [cc.Example("a b", "c"), cc.Example("d", "e", (cc.Span(0, 1, "age"),))]
    keys = {
        cc.ledger_key("reference", [TOY_FINGERPRINT], examples, {}),
        cc.ledger_key("rollout", [TOY_FINGERPRINT], examples, {}),
        cc.ledger_key("reference", [TOY_FINGERPRINT] * 2, examples, {}),
        cc.ledger_key("reference", [replace(TOY_FINGERPRINT, weights="w2")], examples, {}),
        cc.ledger_key("reference", [TOY_FINGERPRINT], examples[:1], {}),
        cc.ledger_key("reference", [TOY_FINGERPRINT], [examples[0], cc.Example("d", "e")], {}),
        cc.ledger_key("reference", [TOY_FINGERPRINT], [cc.Example("a b", "c d"), examples[1]], {}),
        cc.ledger_key("reference", [TOY_FINGERPRINT], examples, {"seed": 1}),
    }
    assert len(keys) == 8
    assert {len(key) for key in keys} == {64}
    again = cc.ledger_key("reference", [TOY_FINGERPRINT], list(examples), {})
    assert again in keys


@pytest.mark.parametrize(("ledger", "batches"), [(None, [[0, 1], [0, 1]]), (cc.MemoryLedger(), [[0, 1]])])
def test_phase_works_out_what_its_ledger_does_not_know(ledger, batches):
    phase, worked, told = LedgerPhase(ledger, "reference", (1, 2)), [], []

    def work(batches):
        for places in batches:
            worked.append(places)
            yield [{"support": np.full(1, place)} for place in places]

    for _ in range(2):
        entries = phase.completed({"support": ((1,), (1,))}, lambda: [[0, 1]], work, told.append)
        assert [entry["support"].item() for entry in entries] == [0, 1]
    assert worked == batches
    assert told == [2, 2]
