"""The map for officers: every field that it names exists, and every annex shows the evidence's own values."""

import re
from dataclasses import replace
from html import unescape

import pytest

from app.report.service import ReportService
from app.shared.errors import ServiceError
from app.shared.formal_reports import Statement
from app.shared.requirements import FIELDS, chosen, listed
from coft_core.messages import LANGUAGES, catalogue

NAMES = tuple(listed()["annexes"])
STATEMENT = Statement("R. Osei", "May it screen?", annexes=NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_is_whole_in_each_language_and_names_fields_that_exist(name):
    annex = listed()["annexes"][name]
    texts = [annex["title"], annex["about"], *(row["lacks"] for row in annex.get("row", ())), *annex.get("row", ())]
    assert all(text[language].strip() for text in texts for language in LANGUAGES)
    named = [field for row in annex.get("row", ()) for field in row["fields"]]
    named += [field for part in annex.get("text", ()) for field in re.findall(r"\{(.*?)\}", part)]
    assert named
    assert set(named) <= set(FIELDS)


def test_each_field_has_a_value_in_some_report(audited):
    pages = [audited.wired[ReportService].formal(number, STATEMENT) for number in audited.sessions.values()]
    assert all(listed()["as_of"] in page for page in pages)
    joint = audited.wired[ReportService].formal(audited.sessions["joint"], STATEMENT)
    assert "R. Osei" in joint
    assert "verdicts were given in a blind review" in joint
    assert catalogue("en").say("map.absent") in joint


@pytest.mark.parametrize("language", LANGUAGES)
def test_only_the_chosen_annexes_are_there_each_with_its_day_and_what_it_lacks(audited, language):
    number, say = audited.sessions["joint"], catalogue(language)
    plain = audited.wired[ReportService].formal(number, replace(STATEMENT, language=language, annexes=()))
    notice = say.say("map.notice", day=listed()["as_of"])
    assert notice not in plain
    for name in NAMES:
        asked = replace(STATEMENT, language=language, annexes=(name,))
        page = unescape(str(audited.wired[ReportService].formal(number, asked)))
        assert page.count(notice) == 1
        annex = listed()["annexes"][name]
        assert annex["title"][language] in page
        for row in annex.get("row", ()):
            assert row["lacks"][language] in page


def test_an_annex_that_does_not_exist_is_refused_with_those_that_do():
    assert chosen(" sr-26-2 ,nyc-notice,") == ("sr-26-2", "nyc-notice")
    with pytest.raises(ServiceError, match="sr-26-2"):
        chosen("sr-11-7")
