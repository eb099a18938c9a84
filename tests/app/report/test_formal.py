"""Formal reports: every language says the same, the first page has what a reader needs, and annexes say what is not."""

import io
import re
import string
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pypdf
import pytest

from app.calibrate.words import evenness_sentence
from app.report import formal
from app.report.formal import DEBIAN_LIBRARIES, pdf_of
from app.report.service import ReportService
from app.shared.errors import ServiceError
from app.shared.formal_reports import AuditedBatch, ImpactRow, RateTable, Statement
from coft_core.conformal.bins import BinEvenness
from coft_core.conformal.part import OTHER_THRESHOLDS, ChainRecord, Iteration
from coft_core.conformal.shift import Shift
from coft_core.decode.plan import NOTHING_MASKED
from coft_core.errors import InvalidInputError
from coft_core.messages import LANGUAGES, catalogue
from coft_core.policies.cf_substitution import NOTHING_SUBSTITUTED
from coft_core.text.language import language_note

STATEMENT = Statement("Dr. R. Osei", "Does the pronoun change the text?", "en", date(2026, 5, 4))
BATCH = AuditedBatch(
    7, "people", "people.csv", datetime(2026, 5, 3, tzinfo=UTC), 12, (), ("men", "women"), {"unfair": 2},
    RateTable(
        "selection",
        (
            ImpactRow("men", 6, 3, 0.5, 0.5, 0.118, 0.882, 1.0, True, False, ""),
            ImpactRow("women", 5, 1, 0.5, 0.2, 0.005, 0.716, 0.4, False, False, ""),
        ),
        1, 0, 0, False, "hired", "rejected",
    ),
    RateTable(
        "scoring",
        (
            ImpactRow("men", 6, 4, 0.5, 2 / 3, 0.223, 0.957, 1.0, True, False, ""),
            ImpactRow("women", 5, 1, 0.5, 0.2, 0.005, 0.716, 0.3, False, False, ""),
        ),
        0, 1, 0, False, "", median=6.5,
    ),
)  # fmt: skip


def placeholders(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_messages_exist_in_every_language_with_the_same_placeholders_and_differ_in_every_sentence():
    for language in LANGUAGES:
        known, english = catalogue(language).messages, catalogue("en").messages
        assert known.keys() == english.keys()
        assert {name: placeholders(text) for name, text in known.items()} == {
            name: placeholders(text) for name, text in english.items()
        }
        assert all(text.strip() for text in known.values())
    english, german = catalogue("en").messages, catalogue("de").messages
    assert [name for name, text in english.items() if len(text) > 30 and text == german[name]] == []


UNEVEN, EVEN = BinEvenness("5–8", 4, 40, 0.0, 0.025), BinEvenness("9–16", 8, 40, 0.6, 0.025)
SPANISH = "La enfermera terminó su turno y los médicos que estaban en el hospital no sabían por qué ella se fue."
ROUND = Iteration(contexts=40, values=900, change=0.031, kept=30, consistent=True, final=True)
STORED = (
    evenness_sentence([UNEVEN]), evenness_sentence([UNEVEN, EVEN]),
    evenness_sentence([UNEVEN, replace(UNEVEN, label="257 and later"), EVEN]), NOTHING_MASKED, NOTHING_SUBSTITUTED,
    OTHER_THRESHOLDS, language_note(SPANISH), Shift.bounded(2.5).sentence,
    Shift.weighted({0: 1.0, 1: 2.0}, 1.5, True).sentence, Shift.weighted({0: 1.0, 1: 2.0}, 1.5, False).sentence,
    ChainRecord("factual", 8).sentence, ChainRecord("factual", 8, 0.01, (ROUND,)).sentence,
)  # fmt: skip
"""What parts of the program say themselves of a prompt or its thresholds."""


def test_what_is_stored_in_english_is_said_in_the_report_s_language_with_its_values():
    for sentence in STORED:
        assert sentence
        assert catalogue("en").stored(sentence) == (sentence, "en")
        said, language = catalogue("de").stored(sentence)
        assert language == "de"
        assert said != sentence
        assert not {"the", "and", "of", "later"} & set(said.split())
    said, _ = catalogue("de").stored(evenness_sentence([UNEVEN, replace(UNEVEN, label="257 and later"), EVEN]))
    assert "der Schritte 5–8 und 257 und später weichen" in said
    assert "Niveau 0,05, 3 Gruppen verglichen" in said
    assert catalogue("de").stored("Somebody’s own words.") == ("Somebody’s own words.", "en")


def test_numbers_are_written_as_the_language_does_and_one_that_there_is_not_is_refused():
    english, german = catalogue("en"), catalogue("de")
    assert (english.number(1234.5), german.number(1234.5)) == ("1,234.50", "1.234,50")
    assert (english.probability(0.9), english.probability(0.00421), english.probability(0.0)) == (
        "0.90", "0.0042", "0.00",
    )  # fmt: skip
    assert english.probability(1e-12) == "<0.000001"
    assert (english.factor(9.94), english.factor(16.2)) == ("9.9", "16")
    assert german.listed(["a", "b", "c"]) == "a, b und c"
    with pytest.raises(InvalidInputError, match="There is no report in the language 'fr'; choose en, de"):
        catalogue("fr")


def pages(data):
    return [" ".join(page.extract_text().split()) for page in pypdf.PdfReader(io.BytesIO(data)).pages]


@pytest.mark.parametrize("language", ["de", pytest.param("en", marks=pytest.mark.slow)])
def test_the_first_page_of_the_pdf_says_who_asked_what_was_found_and_what_is_not_claimed(language, audited):
    say, number = catalogue(language), audited.sessions["joint"]
    statement = replace(STATEMENT, language=language)
    first, *others = pages(audited.wired[ReportService].content(number, "pdf", statement))
    for text in ("Dr. R. Osei", "2026-05-04", "Does the pronoun change the text?", say.say("page.finding")):
        assert text in first
    factor = "times likelier" if language == "en" else "wahrscheinlicher, wenn"
    assert factor in first or "less likely" in first
    assert say.say("page.strongest") in first
    for name in formal.NOT_CLAIMED:
        assert say.say(f"not_claimed.{name}") in first
    rest = " ".join(others)
    for annex in ("nyc", "eu12", "eu15"):
        assert say.say(f"annex.{annex}") not in first
        assert say.say(f"annex.{annex}") in rest


def test_every_kind_of_session_has_a_formal_report_in_every_language(audited):
    for kind in ("factorized", "uninformative", "mismatch", "vanilla", "deleted", "empty"):
        for language in LANGUAGES:
            page = audited.wired[ReportService].formal(audited.sessions[kind], replace(STATEMENT, language=language))
            assert f'<html lang="{language}">' in page
            assert page.count('class="annex"') == 3
            assert "{" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)


def test_annexes_have_coverage_with_its_interval_and_say_what_would_give_rates(audited):
    page = audited.wired[ReportService].formal(audited.sessions["joint"], STATEMENT)
    found = re.search(r"Asked for: 0\.70\. Measured on (\d+) texts that were kept apart: ([\d.]+), 95 % interval", page)
    assert found is not None
    assert int(found[1]) > 0
    plain = audited.wired[ReportService].formal(audited.sessions["uncalibrated"], STATEMENT)
    assert "No calibration was used, so no level of accuracy is stated." in plain
    page = audited.wired[ReportService].formal(audited.sessions["joint"], STATEMENT)
    assert page.count("A batch of prompts with groups gives it.") == 2
    assert "Masked attributes of this prompt: age and gender." in page


def batch_of(audited):
    return replace(BATCH, sessions=(audited.sessions["joint"], 999_999, audited.sessions["greedy"]))


def test_a_batch_has_selection_and_scoring_rates_with_ratios_and_all_that_is_left_out(audited):
    page = audited.wired[ReportService].formal_batch(batch_of(audited), STATEMENT, "formal").decode()
    for text in (
        "Table A1: selection rates", "Table A2: scoring rates", "0.118–0.882", "median score 6.50",
        "Selected where “hired” is in the text before “rejected”", "1 outcome without a known group is in no rate.",
        "1 text that decides nothing is in no rate.", "Groups as the prompt set names them: men and women.",
        "Verdicts of reviewers that are in force: 2 unfair, 0 fair",
    ):  # fmt: skip
        assert text in page, text
    assert re.search(r"<th scope=\"row\">women</th>.*?0\.200.*?0\.40</td>", page, re.DOTALL)


def test_a_batch_without_rules_says_that_no_rate_is_given_and_one_without_sessions_is_refused(audited):
    plain = replace(batch_of(audited), selection=None, scoring=None)
    page = audited.wired[ReportService].formal_batch(plain, STATEMENT, "formal").decode()
    assert "no outcome rule says which text means that somebody is selected" in page
    assert "no rule says how a score is read from a text" in page
    with pytest.raises(ServiceError, match="has no finished session to report"):
        audited.wired[ReportService].formal_batch(replace(plain, sessions=()), STATEMENT, "formal")


def test_hostile_words_of_the_auditor_are_shown_as_text(audited):
    hostile = replace(STATEMENT, auditor="</dd><img src=x>", question="\u202eevil {0} {subject}")
    page = audited.wired[ReportService].formal(audited.sessions["joint"], hostile)
    assert "<img" not in page
    assert "[U+202E]evil {0} {subject}" in page


def test_a_missing_library_is_said_with_what_to_install_and_the_container_has_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(ServiceError, match=r"PDF needs the package weasyprint.*install requirements.txt"):
        pdf_of("<p>text</p>")
    (tmp_path / "weasyprint.py").write_text("raise OSError('cannot load library pango')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    with pytest.raises(ServiceError, match=r"apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0"):
        pdf_of("<p>text</p>")
    dockerfile = (Path(__file__).resolve().parents[3] / "Dockerfile").read_text("utf-8")
    assert [name for name in DEBIAN_LIBRARIES if name not in dockerfile] == []
