"""The review page: sessions to choose from, a session's verdicts, and reviewers' agreement."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gradio as gr

from app.report.panel import place_downloads
from app.review.assignments import AssignmentRequest, AssignmentService, due_date, workloads
from app.review.log import VERDICTS, VerdictRequest
from app.review.service import VerdictService
from app.review.words import (
    agreement_message,
    disputes,
    given_sentence,
    loads,
    queue,
    sessions_list,
    sheet_message,
    signed_verdict,
)
from app.sessions.service import LibraryQuery, SessionLibrary
from app.shared.errors import ServiceError
from app.shared.events import MULTIPLE, On, Reply, downloaded, reply, shown, shown_to, told_of_failure, wire
from app.shared.glossary import explained
from app.shared.markup import html
from app.shared.needs import EXPORT, LEAD, READ
from app.shared.web import topbar
from app.shared.wiring import Services


def _part(name: str, script: str, frame: str) -> gr.HTML:
    """A part of a page that its own script fills."""
    return gr.HTML(html_template=frame, js_on_load=script, apply_default_css=False, elem_id=name, elem_classes=["coft"])


def session_picker() -> gr.HTML:
    """Place the reviewer's name and the search for a session."""
    frame = html("""<div class="pagehead"><h1>Reviews</h1>
          <p class="sub">Second opinions, decisions, and how far reviewers agree.</p>
          <p class="reviewer-line"><span class="sub named"></span>
            <button type="button" class="btn small" data-do="rename">Change name</button></p></div>
        <p class="finding" role="status"></p>
        <div class="start" hidden>
        <section class="queue" aria-label="Assigned to you"></section>
        <section class="picker" aria-labelledby="h-pick">
          <div class="bar"><h2 id="h-pick">Choose a session</h2></div>
          <form class="field" role="search"><label class="vh" for="pick-text">Search sessions</label>
            <input id="pick-text" class="input" type="search" autocomplete="off"
              placeholder="Search names, prompts, tags and notes"></form>
          <div class="choices" aria-live="polite"><p class="sub">Loading …</p></div></section>
        <section class="differ" aria-labelledby="h-differ"><h2 id="h-differ">Where reviewers differ</h2>
          <p class="hint">The list shows what others said, so look at it when your own reviews are done: a review that
            you begin afterwards is not blind. What is assigned to you stays out of it until you finish.</p>
          <p class="sub settled" role="status"></p>
          <div class="disputes-box" tabindex="-1">
            <button type="button" class="btn small" data-do="differ">Show what waits for a decision</button></div>
        </section>
        <section class="team" aria-labelledby="h-team"><h2 id="h-team">Assignments</h2>
          <div class="loads-box"></div>
          <details><summary>{{ icon("chev", "chev") }}Assign reviews</summary><form class="assign">
            <div class="field"><label for="assign-to">Reviewers</label>
              <input id="assign-to" class="input" autocomplete="off" placeholder="Ana, Ben" required></div>
            <div class="field"><label for="assign-text">Sessions that mention</label>
              <input id="assign-text" class="input" autocomplete="off" placeholder="a name, prompt, tag or note"
                required></div>
            <div class="field"><label for="assign-due">Due on</label>
              <input id="assign-due" class="input" type="date"></div>
            <button class="btn" data-takes="assign">Assign</button></form></details>
          <p class="sub assigned" role="status"></p></section></div>""")
    script = "coft.review.picker(element, trigger, props, watch, ['find', 'assign', 'differ', 'settle'])"
    return _part("review-pick", script, frame)


def review_sheet() -> gr.HTML:
    """Place a session's reviews, targets and log, and the question that a decision asks."""
    frame = html(
        """
        <div class="one-session" hidden><section class="head" aria-label="Session"></section>
        <p class="sub told" role="status"></p>
        <section aria-labelledby="h-own"><h3 id="h-own">Your review</h3><div class="review"></div></section>
        <section aria-labelledby="h-targets"><div class="bar"><h3 id="h-targets">What was judged</h3>
          <span class="end"><label class="vh" for="review-status">Show</label>
            <select id="review-status" class="select small"></select></span></div>
          <div class="targets-box scrolls" tabindex="0" role="region"
            aria-label="What was judged, table"></div></section>
        <section class="log-part" aria-labelledby="h-log"><div class="bar"><h3 id="h-log">Log</h3>
          <span class="check"></span><span class="end"><button type="button" class="btn small" data-do="file">
            {{ icon("down") }}Download as CSV</button></span></div>
          <p class="hint">Entries are only added. Each one names the digest of the one before, so a change or a gap
            shows.</p><div class="log-box scrolls" tabindex="0"
            role="region" aria-label="Log entries"></div></section></div>
        <dialog id="decide" class="sheet coft" aria-labelledby="decide-title"><form method="dialog">
          <h2 id="decide-title"></h2><ul class="sides"></ul>
          <div class="choices-row" role="radiogroup" aria-label="Decision">{% for verdict in verdicts %}
            <label class="choice"><input type="radio" name="decision" value="{{ verdict }}" required>
              {{ icon(verdict) }}{{ verdict|capitalize }}</label>{% endfor %}</div>
          <div class="field"><label for="decide-note">Why</label>
            <textarea id="decide-note" class="input" rows="3" maxlength="20000"></textarea></div>
          <p class="hint">The decision stands until somebody judges this again.</p>
          <div class="row"><button type="button" class="btn" data-do="cancel">Cancel</button>
            <button class="btn primary" value="yes">Decide</button></div></form></dialog>""",
        verdicts=VERDICTS,
    )
    script = "coft.review.sheet(element, trigger, props, watch, ['read', 'act', 'decide', 'file'])"
    return _part("review-sheet", script, frame)


def agreement_part() -> gr.HTML:
    """Place the choice of two reviewers and how far they agree."""
    frame = """<section class="agreement" aria-labelledby="h-agree">
        <h3 id="h-agree">Agreement</h3>
        <p class="hint">Of all that both judged: how often they said the same, beyond what chance gives.</p>
        <div class="agree-form">
          <div class="field"><label for="agree-first">First reviewer</label>
            <select id="agree-first" class="select"></select></div>
          <div class="field"><label for="agree-second">Second reviewer</label>
            <select id="agree-second" class="select"></select></div>
          <div class="field"><label for="agree-over">Over</label><select id="agree-over" class="select">
            <option value="all">all sessions</option><option value="this">this session</option></select></div></div>
        <div class="agree-result" aria-live="polite"></div></section>"""
    return _part("review-agreement", "coft.agreement.mount(element, trigger, props, watch, ['agree'])", frame)


OFFERED = 12
"""Sessions that are listed at once."""


class ReviewHandlers:
    """What the page asks of the services."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for logs that lives as long as the page."""
        self._verdicts = services[VerdictService]
        self._assignments = services[AssignmentService]
        self._library = services[SessionLibrary]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-verdicts-")

    @shown_to(READ)
    def find(self, event: gr.EventData) -> Reply:
        """Sessions whose name, prompt, tags or notes hold a text, and at first what else there is to do."""
        page = self._library.search(LibraryQuery(text=str(event.text), archived=None, page_size=OFFERED))
        found: Reply = {"kind": "sessions", "html": sessions_list(page, str(event.text))}
        if not event.whole:
            return reply(event, found)
        finding = explained(self._verdicts.team_agreement().sentence)
        return reply(event, {**found, **self._team(signed_verdict(event.reviewer)), "finding": finding})

    @shown_to(LEAD)
    def assign(self, event: gr.EventData) -> Reply:
        """Assign the sessions that mention a text to reviewers."""
        lead = signed_verdict(event.reviewer)
        assigned = self._assignments.assign(
            AssignmentRequest(lead, (str(event.to),), text=str(event.text), due_on=due_date(str(event.due)))
        )
        return reply(event, {"kind": "team", **self._team(lead), "said": assigned.sentence})

    @shown_to(READ)
    def differ(self, event: gr.EventData) -> Reply:
        """What reviewers differ on and nobody has decided."""
        return self._differing(event)

    @shown_to(LEAD)
    def settle(self, event: gr.EventData) -> Reply:
        """Decide a disagreement of the list as a third person."""
        return self._differing(event, self._decided(event))

    @shown_to(READ)
    def read(self, event: gr.EventData) -> Reply:
        """A session's verdicts."""
        return self._sheet(event)

    @shown
    def act(self, event: gr.EventData) -> Reply:
        """Begin or finish a review."""
        session, reviewer = int(event.session), str(event.reviewer)
        if event.action == "finish":
            self._verdicts.finish_review(session, reviewer)
            return self._sheet(event, "Your review is finished; you see what others say.")
        if event.action not in ("blind", "open"):
            raise ServiceError(f"There is no action {event.action!r}; choose blind, open or finish.")
        entry = self._verdicts.start_review(session, reviewer, blind=event.action == "blind")
        return self._sheet(event, f"Your {'blind' if entry.blind else 'open'} review has begun.")

    @shown_to(LEAD)
    def decide(self, event: gr.EventData) -> Reply:
        """Decide a disagreement as a third person."""
        return self._sheet(event, self._decided(event))

    @shown_to(EXPORT)
    def file(self, event: gr.EventData) -> str:
        """Write the log for download."""
        reader = signed_verdict(event.reviewer)
        return str(self._verdicts.write_csv(int(event.session), Path(self._folder.name), reader))

    @shown_to(READ)
    def agree(self, event: gr.EventData) -> Reply:
        """How far two reviewers agree, on one session or on all."""
        names = self._verdicts.reviewers()
        chosen = event.first in names and event.second in names and event.first != event.second
        agreement = self._verdicts.agreement(event.first, event.second, event.session) if chosen else None
        return reply(event, agreement_message(names, agreement))

    def _sheet(self, event: gr.EventData, said: str = "") -> Reply:
        reviewer, session = signed_verdict(event.reviewer), int(event.session)
        message = sheet_message(
            self._verdicts.sheet(session, reviewer, bool(event.reveal)), reviewer, bool(event.reveal), said
        )
        hidden = message["closed"] or message["blind"]
        finding = "" if hidden else explained(self._verdicts.team_agreement(session).sentence)
        return reply(event, {**message, "finding": finding})

    def _decided(self, event: gr.EventData) -> str:
        request = VerdictRequest(
            int(event.session), str(event.reviewer), event.verdict, event.branch, event.first, event.last,
            str(event.note),
        )  # fmt: skip
        return given_sentence(self._verdicts.adjudicate(request)).replace("Saved", "Decided", 1)

    def _differing(self, event: gr.EventData, said: str = "") -> Reply:
        reviewer = signed_verdict(event.reviewer)
        listed = disputes(self._verdicts.disputes(reviewer), reviewer)
        return reply(event, {"kind": "differ", "html": listed, "said": said})

    def _team(self, reviewer: str) -> Reply:
        assigned = self._assignments.list()
        return {"queue": queue(assigned, reviewer), "loads": loads(workloads(assigned))}


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = ReviewHandlers(services)
    topbar(services, "review")
    with gr.Column(elem_classes=["page", "reviewing"], elem_id="main"):
        picker = session_picker()
        sheet = review_sheet()
        agreement = agreement_part()
    place_downloads(services)
    file = gr.DownloadButton("Log", elem_id="log-file", elem_classes=["offscreen"])
    told_of_failure(picker.find(handlers.find, None, picker, **MULTIPLE), "review-sessions")
    choices = {"assign": On(handlers.assign, picker), "differ": On(handlers.differ, picker)}
    wire(picker, {**choices, "settle": On(handlers.settle, picker)}, MULTIPLE, "review-")
    told_of_failure(sheet.read(handlers.read, None, sheet, **MULTIPLE), "review-sheet")
    wire(sheet, {"act": On(handlers.act, sheet), "decide": On(handlers.decide, sheet)}, MULTIPLE, "review-")
    wire(agreement, {"agree": On(handlers.agree, agreement)}, MULTIPLE, "review-")
    downloaded(sheet.file(handlers.file, None, file, **MULTIPLE), "log-file")
