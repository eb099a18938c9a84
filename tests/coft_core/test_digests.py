"""Digests are whole where they are made, and the shortened ones of earlier versions still agree with them."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

from coft_core.conformal.calibration import Calibration
from coft_core.fingerprint import same_digests, shortest_digest
from coft_core.model.fake import tiny_model
from coft_core.policies.cf_substitution import CfSubstitutionPolicy
from coft_core.text.detection import SpanDetector
from coft_core.text.user_list import UserList
from coft_core.types import UserTerm
from tests.conftest import TOY_FINGERPRINT

WHOLE = hashlib.sha256(b"weights").hexdigest()
OTHER = hashlib.sha256(b"others").hexdigest()


def test_a_digest_agrees_with_its_own_beginning_alone():
    for digits in (12, 16, 64):
        assert same_digests(f"sha256:{WHOLE[:digits]}", f"sha256:{WHOLE}")
        assert same_digests(f"sha256:{WHOLE}", f"sha256:{WHOLE[:digits]}")
        assert not same_digests(f"sha256:{OTHER[:digits]}", f"sha256:{WHOLE}")
        assert not same_digests(f"sampled:{WHOLE[:digits]}", f"sha256:{WHOLE}")


def test_shortened_digests_agree_with_a_whole_one_alone_and_only_from_some_digits_on():
    # Both ends of a comparison would rest on the few digits that they share.
    assert not same_digests(WHOLE[:12], WHOLE[:16])
    assert not same_digests(WHOLE[:8], WHOLE)
    assert not same_digests("", WHOLE)
    text = "lexicon 4+{}, no pipeline, no suggestions, list 'a'+{}"
    assert same_digests(text.format(WHOLE, OTHER), text.format(WHOLE[:12], OTHER[:12]))
    assert not same_digests(text.format(WHOLE, OTHER), text.format(WHOLE[:12], WHOLE[:12]))
    assert shortest_digest(text.format(WHOLE, OTHER[:12])) == 12
    assert shortest_digest("no digest") is None


def test_a_policy_names_nothing_by_a_shortened_digest():
    model = tiny_model(chat_template="{{ messages[0].content }}")
    listed = UserList("ward", (UserTerm("nurse", "other", True),))
    detector = SpanDetector(pipeline=None).adapted((), listed).version
    own = CfSubstitutionPolicy().fingerprint(model, detector)
    digests = {name: shortest_digest(str(value)) for name, value in own.to_dict().items()}
    assert {name: digits for name, digits in digests.items() if digits not in (None, 64)} == {}
    assert digests["weights"] == digests["tokenizer"] == digests["detector"] == digests["method"] == 64
    assert digests["chat_template"] == 64
    assert shortest_digest(own.digest) == 64


def test_fingerprints_and_calibrations_with_shortened_digests_are_still_read():
    whole = replace(TOY_FINGERPRINT, weights=f"sha256:{WHOLE}", detector=f"lexicon 4+{OTHER}, no pipeline")
    short = replace(whole, weights=f"sha256:{WHOLE[:16]}", detector=f"lexicon 4+{OTHER[:12]}, no pipeline")
    short.require_equal(whole)
    whole.require_equal(short)
    assert whole.differences(replace(short, weights=f"sha256:{OTHER[:16]}"))[0][0] == "weights"
    data = (Path(__file__).parent / "conformal" / "data" / "calibration_version_1.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        stated = json.loads(archive.read("calibration.json"))["digest"]
    found = Calibration.from_bytes(data).fingerprint
    assert len(stated) < 64
    assert same_digests(stated, found.digest)
