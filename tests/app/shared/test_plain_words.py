"""Sentences for persons: wordings that no auditor understood stay away, and no badge settles what is unfair."""

from __future__ import annotations

import re
from pathlib import Path

from app.shared.step_words import certificate_words

ROOT = Path(__file__).resolve().parents[3]
FOLDERS, KINDS = ("app", "coft_core", "assets"), (".py", ".js", ".html", ".j2", ".toml", ".css", ".yaml")
FILES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in KINDS and "vendor" not in path.parts
]
SHOWN = {path: re.sub(r"[\"']\s+f?[\"']", "", re.sub(r"\s+", " ", path.read_text("utf-8"))) for path in FILES}
"""Everything that pages, reports and commands are made of, with literals that stand in several lines joined."""

REPLACED = (
    "Fuses the factual and the masked reading", "certifies tokens in both", "steps traced; weights packed",
    "at the start, and tau", "thresholds up to step {view", "coverage {summary", "drift: fresh", "Joint support {",
    "reaches the threshold {", "TV on the set", "Two answers, which need not agree", "No token is less supported than",
    "Steps that are charged", "0: no statement", "together the bound is 0", "part at token {", ". In all {",
    "Visible: up to", '"Remarkable', "Read it otherwise", "choose a larger alpha", "test martingale at most",
    "Turn every method up", "because of the masked words", "plausible without the sensitive words",
    "or smoothed where there are", "text or group count together", "would have drawn a token that is not certified",
    "resemble those of the calibration. where", "because of {", "without them, {", "wegen {words}", "{masked} without",
    "{masked} ohne", "answers with and without", "words and without them",
)  # fmt: skip


def test_a_replaced_wording_is_nowhere():
    found = [
        (wording, path.relative_to(ROOT))
        for path, text in SHOWN.items()
        for wording in REPLACED
        if wording.lower() in text.lower()
    ]
    assert found == []


def test_the_files_that_are_searched_hold_what_is_shown_instead():
    whole = " ".join(SHOWN.values())
    for wording in ("Mixes the readings with the sensitive words shown", "How much masking shifts the choice",
                    "Does the guarantee cover the whole text?", "Still fits your prompts"):  # fmt: skip
        assert wording in whole


def test_a_badge_of_a_session_says_which_thresholds_it_is_under_and_never_that_it_is_certified():
    assert certificate_words("certified") == "under thresholds"
    assert certificate_words("uncertified: vanilla decoding") == "uncertified: vanilla decoding"
