from __future__ import annotations

import json
import re
from dataclasses import fields, replace

import pytest

from coft_core.errors import CalibrationFormatError, CalibrationMismatch
from coft_core.fingerprint import Fingerprint
from tests.conftest import TOY_FINGERPRINT

FINGERPRINT = TOY_FINGERPRINT
CHANGES = {
    f.name: "other" if isinstance(getattr(FINGERPRINT, f.name), str) else getattr(FINGERPRINT, f.name) + 1
    for f in fields(Fingerprint)
} | {"rendering": "other as of 2026-03-02"}


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_changes_the_digest_and_is_named_when_it_differs(field):
    other = replace(FINGERPRINT, **{field: CHANGES[field]})
    assert other.digest != FINGERPRINT.digest
    with pytest.raises(CalibrationMismatch, match=f"{field}: calibrated with") as caught:
        FINGERPRINT.require_equal(other)
    assert caught.value.fields == (field,)


def test_mismatch_lists_all_fields_in_order_with_both_values():
    other = replace(FINGERPRINT, estimator="pooled", lam=0.4)
    with pytest.raises(CalibrationMismatch) as caught:
        FINGERPRINT.require_equal(other)
    assert caught.value.fields == ("lam", "estimator")
    assert caught.value.differences == (("lam", "0.6", "0.4"), ("estimator", "hierarchical", "pooled"))
    assert "lam: calibrated with 0.6, used with 0.4" in str(caught.value)


def test_equal_fingerprints_are_accepted_and_share_a_digest():
    copy = replace(FINGERPRINT)
    FINGERPRINT.require_equal(copy)
    assert copy.digest == FINGERPRINT.digest
    assert FINGERPRINT.differences(copy) == ()


def test_a_digest_is_a_whole_sha256_and_fixed():
    assert re.fullmatch("[0-9a-f]{64}", FINGERPRINT.digest)
    assert replace(FINGERPRINT, sentinel="é").digest == replace(FINGERPRINT, sentinel="\u00e9").digest


def test_dictionary_survives_json():
    copy = Fingerprint.from_dict(json.loads(json.dumps(FINGERPRINT.to_dict())))
    assert copy == FINGERPRINT
    assert copy.digest == FINGERPRINT.digest
    absent = ["method", "rendering", "thinking", "system", "prefill", "turns"]
    assert [*FINGERPRINT.to_dict(), *absent] == [f.name for f in fields(Fingerprint)]


def test_a_method_of_its_own_changes_the_digest_and_survives_json():
    other = replace(FINGERPRINT, method="sdd {}")
    assert other.digest != FINGERPRINT.digest
    assert Fingerprint.from_dict(json.loads(json.dumps(other.to_dict()))) == other
    assert FINGERPRINT.differences(other) == (("method", "", "sdd {}"),)


def test_missing_and_unknown_fields_are_named():
    complete = FINGERPRINT.to_dict()
    with pytest.raises(CalibrationFormatError, match="lacks the field 'weights'"):
        Fingerprint.from_dict({name: value for name, value in complete.items() if name != "weights"})
    with pytest.raises(CalibrationFormatError, match="unknown field 'colour'"):
        Fingerprint.from_dict(complete | {"colour": "red"})
