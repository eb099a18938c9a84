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


def test_every_field_changes_the_digest_and_is_named_when_it_differs():
    for field in CHANGES:
        other = replace(FINGERPRINT, **{field: CHANGES[field]})
        assert other.digest != FINGERPRINT.digest
        with pytest.raises(CalibrationMismatch, match=f"{field}: calibrated with") as caught:
            FINGERPRINT.require_equal(other)
        assert caught.value.fields == (field,)


def test_mismatches_list_all_fields_and_equal_fingerprints_share_a_whole_digest():
    other = replace(FINGERPRINT, estimator="pooled", lam=0.4)
    with pytest.raises(CalibrationMismatch) as caught:
        FINGERPRINT.require_equal(other)
    assert caught.value.fields == ("lam", "estimator")
    assert caught.value.differences == (("lam", "0.6", "0.4"), ("estimator", "hierarchical", "pooled"))
    assert "lam: calibrated with 0.6, used with 0.4" in str(caught.value)
    copy = replace(FINGERPRINT)
    FINGERPRINT.require_equal(copy)
    assert copy.digest == FINGERPRINT.digest
    assert FINGERPRINT.differences(copy) == ()
    assert re.fullmatch("[0-9a-f]{64}", FINGERPRINT.digest)
    assert replace(FINGERPRINT, sentinel="é").digest == replace(FINGERPRINT, sentinel="\u00e9").digest


def test_dictionaries_and_own_methods_survive_json_and_other_fields_are_named():
    copy = Fingerprint.from_dict(json.loads(json.dumps(FINGERPRINT.to_dict())))
    assert copy == FINGERPRINT
    assert copy.digest == FINGERPRINT.digest
    absent = ["method", "rendering", "thinking", "system", "prefill", "turns"]
    assert [*FINGERPRINT.to_dict(), *absent] == [f.name for f in fields(Fingerprint)]
    other = replace(FINGERPRINT, method="sdd {}")
    assert other.digest != FINGERPRINT.digest
    assert Fingerprint.from_dict(json.loads(json.dumps(other.to_dict()))) == other
    assert FINGERPRINT.differences(other) == (("method", "", "sdd {}"),)
    complete = FINGERPRINT.to_dict()
    with pytest.raises(CalibrationFormatError, match="lacks the field 'weights'"):
        Fingerprint.from_dict({name: value for name, value in complete.items() if name != "weights"})
    with pytest.raises(CalibrationFormatError, match="unknown field 'colour'"):
        Fingerprint.from_dict(complete | {"colour": "red"})
