"""The HTML report: needs nothing else, says what must be said, and shows hostile text as text."""

import functools
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from app.audit.service import AuditService
from app.report import words
from app.report.drawings import steps_chart, strip
from app.report.service import ReportService
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.shared.audits import StartAudit
from coft_core.types import Span
from tests.app.report.conftest import SETTINGS


class Page(HTMLParser):
    """Collects what a browser would act on, and the text that a person reads."""

    def __init__(self, text):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data):
        if not self._inside:
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def page_of(audited):
    return functools.cache(lambda kind: Page(audited.wired[ReportService].html(audited.sessions[kind])))


def test_the_page_asks_for_nothing_runs_no_script_and_has_a_chart_for_each_branch(audited, page_of):
    text = audited.wired[ReportService].html(audited.sessions["joint"])
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base", "form")
        for name in ("src", "action", "background", "poster"):
            assert name not in attributes
        if tag == "use":
            assert str(attributes["href"]).startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    style = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    assert "url(" not in style
    assert "@import" not in style
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'")
    page = page_of("joint")
    assert not [tag for tag, _ in page.tags if tag == "script"]
    classes = [attributes.get("class") for tag, attributes in page.tags if tag == "svg"]
    assert (classes.count("heatstrip"), classes.count("stepschart")) == (2, 2)
    assert "stepschart" not in [attributes.get("class") for _, attributes in page_of("empty").tags]


def test_the_chart_tells_each_steps_numbers_and_draws_no_bar_without_a_threshold(audited, page_of):
    (steps, _) = chains_of(audited, audited.sessions["joint"])
    drawn = steps_chart(steps)
    limited = [step.state not in ("none", "uninformative") and step.set_size > 0 for step in steps]
    assert [item["bar"] is not None for item in drawn["steps"]] == limited
    assert [item["said"].split(",")[0] for item in drawn["steps"]] == [f"step {step.index + 1}" for step in steps]
    circles = [tag for tag, _ in page_of("joint").tags if tag == "circle"]
    assert len(circles) == sum(len(chain) + 1 for chain in chains_of(audited, audited.sessions["joint"]))
    (plain,) = chains_of(audited, audited.sessions["uncalibrated"])[:1]
    assert {item["bar"] for item in steps_chart(plain)["steps"]} == {None}
    assert "no calibration" in steps_chart(plain)["note"]


def test_the_report_leads_with_what_the_attribute_did_and_thresholds_come_after_it(audited, page_of):
    text = page_of("joint").text
    (own, fork) = chains_of(audited, audited.sessions["joint"])
    strongest = max((*own, fork[-1]), key=lambda step: abs(step.diagnostics.log_ratio))
    found = re.search(r"([\d.,]+) times (less )?likel(?:ier|y) with “old” and “he” shown: the token “(.*?)” at", text)
    assert found is not None
    assert found[3] == words.printable_token(strongest.token)
    assert bool(found[2]) is (strongest.diagnostics.log_ratio < 0)
    assert text.index(found[0]) < text.index("What was audited") < text.index("What the thresholds say")


def test_hostile_text_is_shown_as_text_and_hides_nothing(audited):
    hostile = "</style></script><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"
    request = StartAudit(f"{hostile} \u202eshe", replace(SETTINGS, max_new_tokens=3), (Span(0, 8, "gender"),), hostile)
    view = audited.wired[AuditService].start(request)
    list(audited.wired[AuditService].run(view.session_id))
    verdict = VerdictRequest(view.session_id, f"A {hostile}", "fair", view.branch_id, 0, None, hostile, hostile[:90])
    audited.wired[VerdictService].add(verdict)
    text = audited.wired[ReportService].html(view.session_id)
    page = Page(text)
    assert not any(tag == "img" for tag, _ in page.tags)
    assert not any(tag == "script" for tag, _ in page.tags)
    assert "alert(2)" in page.text
    assert "{{7*7}}" in page.text
    assert "\u202e" not in text
    assert "[U+202E]she" in text


def test_a_session_is_certified_at_so_many_of_its_steps(audited, page_of):
    held = sum(step.certified for step in chains_of(audited, audited.sessions["joint"])[0])
    assert f"Certified at {held} of 7 steps" in page_of("joint").text


def chains_of(audited, session_id):
    branches = audited.wired[AuditService].view(session_id).branches
    return [audited.wired[AuditService].view(session_id, branch.id).steps for branch in branches]


def test_the_strip_draws_up_what_visibility_favours_and_down_what_masking_favours(audited):
    (steps, _) = chains_of(audited, audited.sessions["joint"])
    up, down = (
        replace(step, diagnostics=replace(step.diagnostics, log_ratio=ratio))
        for step, ratio in zip(steps, (0.8, -0.2), strict=False)
    )
    first, second = strip([up, down])["cells"]
    assert (first["down"], first["high"], first["sensitive"]) == (False, pytest.approx(18.0), True)
    assert (second["down"], second["high"], second["sensitive"]) == (True, pytest.approx(4.5), False)
    assert strip([])["cells"] == []
    assert len(strip([up] * 1000)["cells"]) <= 340
