"""Which passwords accounts may have, and those that the program makes."""

import math

import pytest

from app.accounts.passwords import COMMON, DIGEST_BYTES, digest_of_common, one_time_password, usable
from app.shared.errors import ServiceError


def test_common_passwords_and_their_variations_are_refused_in_whatever_case():
    for password in (
        "passwordpassword", "123456789012", "qwertyuiop[]", "iloveyou1234", "Password1234!", "unbelievable",
        "1qaz2wsx3edc", "P@ssw0rd2024!", "letmeinletmein", "correcthorse",
    ):  # fmt: skip
        with pytest.raises(ServiceError, match="easily guessed"):
            usable(password, "Bo Mills")
    kept = COMMON.read_bytes()
    digests = [kept[at : at + DIGEST_BYTES] for at in range(0, len(kept), DIGEST_BYTES)]
    assert len(digests) == 10_000
    assert digests == sorted(set(digests))
    # Words typed on a Russian keyboard that is set to English: common, and hard to guess for who does not know it.
    for password in ("lytdybrbdfvgbhf", "NHBYBNHJNJKEJK", "gfhfktkjuhfv"):
        assert digest_of_common(password) in digests
        with pytest.raises(ServiceError, match="easily guessed"):
            usable(password, "Bo Mills")


def test_a_password_has_neither_the_name_of_the_account_nor_the_programs_in_it():
    for word in ("coft", "C.O.F.T.", "mills", "MiLLs", "B-o M_ills"):
        with pytest.raises(ServiceError, match=" in it, "):
            usable(f"quiet rivers {word} under old bridges", "Bo Mills")
    # Two letters stand in many words.
    usable("bold rivers under old bobbins", "Bo Mills")


def test_passwords_that_the_program_makes_are_random_and_long():
    made = [one_time_password() for _ in range(200)]
    assert len(set(made)) == 200
    assert {len(password.replace("-", "")) for password in made} == {28}
    letters = set("".join(made)) - {"-"}
    assert len(letters) == 31
    assert 28 * math.log2(len(letters)) > 128
