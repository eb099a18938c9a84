"""Fingerprints taken apart: what was put together comes out again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.audit.fitting import mask_settings
from app.shared.planning import detector_parts
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import MaskSettings
from coft_core.text.user_list import UserList
from coft_core.types import FAMILIES, UserTerm

HINTS = st.one_of(
    st.sampled_from(["a person", '"a person"', "; factorized", "a; only gender", 'keeps ["x"]', "a; keeps []", ""]),
    st.text(st.characters(codec="utf-8"), max_size=20),
)


@given(
    st.sampled_from(["hard", "soft"]),
    HINTS,
    st.none() | st.lists(st.sampled_from(FAMILIES), min_size=1, unique=True).map(tuple),
    st.sampled_from(["joint", "factorized"]),
    st.lists(st.text("abcäß \"',;[]{}\\", max_size=12), max_size=3).map(tuple),
)
def test_mask_settings_read_back_from_their_label_have_that_label(mode, hint, families, layout, whitelist):
    made = MaskSettings(mode, hint, None, families, layout, whitelist)
    found = mask_settings(made.label)
    assert found is not None
    assert found.label == made.label
    if mode == "hard" or ";" not in hint:
        assert (found.layout, found.families, found.whitelist) == (made.layout, made.families, made.whitelist)


@pytest.mark.parametrize("label", ["", "medium", "hard; twice", "hard; keeps [", "soft", "hard; only nobody"])
def test_a_label_of_no_settings_is_told_apart(label):
    assert mask_settings(label) is None


@pytest.fixture(scope="module")
def detector():
    return SpanDetector(pipeline=None)


@pytest.mark.parametrize("families", [(), ("gender",), FAMILIES], ids=["none", "one", "all"])
@pytest.mark.parametrize("name", [None, "ward", "a, no suggestions, list 'b'"])
def test_a_detectors_version_names_its_families_and_its_list(detector, families, name):
    listed = None if name is None else UserList(name, (UserTerm("nurse", "other", True),))
    parts = detector_parts(detector.adapted(families, listed).version)
    assert parts is not None
    assert parts.masked_families == tuple(families)
    assert parts.user_list == ("" if listed is None else listed.label)
    assert parts.found_by == detector_parts(detector.version).found_by


def test_a_version_of_another_form_is_told_apart():
    assert detector_parts("lexicon 1") is None
