"""The review page: sessions to choose from, a session's verdicts, and reviewers' agreement."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gradio as gr

from app.prompts.words import beginning
from app.report.panel import place_downloads
from app.review.assignments import AssignmentRequest, AssignmentService, due_date, workloads
from app.review.log import VERDICTS
from app.review.panel import asked_by
from app.review.service import VerdictService, waiting_sentence
from app.review.words import given_sentence, link, place_name, sheet_message, signed_verdict
from app.sessions.service import LibraryQuery, SessionLibrary
from app.shared.errors import ServiceError
from app.shared.events import MULTIPLE, On, Reply, downloaded, reply, shown, shown_to, told_of_failure, wire
from app.shared.glossary import explained
from app.shared.markup import laid_out
from app.shared.needs import EXPORT, LEAD, READ
from app.shared.web import topbar
from app.shared.wiring import Services


def _part(name: str, script: str, events: str, **values: object) -> gr.HTML:
    """Place the part of the page that a template frames and a script fills, which may ask for these events."""
    return gr.HTML(
        html_template=laid_out(f"review/{name}.html", **values),
        js_on_load=f"coft.{script}(element, trigger, props, watch, {events.split()})",
        apply_default_css=False,
        elem_id=f"review-{name}",
        elem_classes=["coft"],
    )


STATES = {"open": "to be reviewed", "begun": "begun", "overdue": "overdue", "done": "done"}
"""How an assignment stands, in words."""
OFFERED, FIRST_MATCHES = 12, 5
"""Sessions that are listed at once: to choose from, and of those that an assignment would be about."""


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
        text = str(event.text).strip()
        page = self._library.search(LibraryQuery(text=text, archived=None, page_size=OFFERED))
        listed = laid_out("review/sessions_list.html", page=page, text=text, beginning=beginning)
        found: Reply = {"kind": "sessions", "html": listed}
        if not event.whole:
            return reply(event, found)
        finding = explained(self._verdicts.team_agreement().sentence)
        return reply(event, {**found, **self._team(signed_verdict(event.reviewer)), "finding": finding})

    @shown_to(READ)
    def match(self, event: gr.EventData) -> Reply:
        """What an assignment by a text would be about: how many audits, and the first of them."""
        text = str(event.text)
        page = self._library.search(LibraryQuery(text=text, page_size=FIRST_MATCHES))
        shown = laid_out("review/matches.html", page=page, text=text, beginning=beginning)
        return reply(event, {"kind": "match", "text": text, "html": shown})

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
        if not chosen:
            return reply(
                event, {"kind": "agreement", "names": [*names], "html": laid_out("review/nobody.html", names=names)}
            )
        found = self._verdicts.agreement(event.first, event.second, event.session)
        html = laid_out(
            "review/agreed.html",
            agreement=found,
            result=found.result,
            waiting=waiting_sentence(found.waiting),
            columns=list(zip(*found.result.table, strict=True)),
        )
        return reply(event, {"kind": "agreement", "names": [*names], "html": html})

    def _sheet(self, event: gr.EventData, said: str = "") -> Reply:
        reviewer, session = signed_verdict(event.reviewer), int(event.session)
        message = sheet_message(
            self._verdicts.sheet(session, reviewer, bool(event.reveal)), reviewer, bool(event.reveal), said
        )
        hidden = message["closed"] or message["blind"]
        finding = "" if hidden else explained(self._verdicts.team_agreement(session).sentence)
        return reply(event, {**message, "finding": finding})

    def _decided(self, event: gr.EventData) -> str:
        entry = self._verdicts.adjudicate(asked_by(event, event.verdict))
        return given_sentence(entry).replace("Saved", "Decided", 1)

    def _differing(self, event: gr.EventData, said: str = "") -> Reply:
        reviewer = signed_verdict(event.reviewer)
        found = self._verdicts.disputes(reviewer)
        told = {"found": found, "reviewer": reviewer, "link": link, "place_name": place_name}
        listed = laid_out("review/disputes.html", **told)
        return reply(event, {"kind": "differ", "html": listed, "said": said})

    def _team(self, reviewer: str) -> Reply:
        assigned = self._assignments.list()
        left = [item for item in assigned if item.reviewer == reviewer and item.state != "done"]
        return {
            "queue": laid_out("review/queue.html", left=left, states=STATES),
            "loads": laid_out("review/loads.html", workloads=workloads(assigned)),
        }


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = ReviewHandlers(services)
    topbar(services, "review")
    with gr.Column(elem_classes=["page", "reviewing"], elem_id="main"):
        picker = _part("pick", "review.picker", "find match assign differ settle")
        sheet = _part("sheet", "review.sheet", "read act decide file", verdicts=VERDICTS)
        agreement = _part("agreement", "agreement.mount", "agree")
    place_downloads(services)
    file = gr.DownloadButton("Log", elem_id="log-file", elem_classes=["offscreen"])
    told_of_failure(picker.find(handlers.find, None, picker, **MULTIPLE), "review-sessions")
    choices = {
        "match": On(handlers.match, picker),
        "assign": On(handlers.assign, picker),
        "differ": On(handlers.differ, picker),
    }
    wire(picker, {**choices, "settle": On(handlers.settle, picker)}, MULTIPLE, "review-")
    told_of_failure(sheet.read(handlers.read, None, sheet, **MULTIPLE), "review-sheet")
    wire(sheet, {"act": On(handlers.act, sheet), "decide": On(handlers.decide, sheet)}, MULTIPLE, "review-")
    wire(agreement, {"agree": On(handlers.agree, agreement)}, MULTIPLE, "review-")
    downloaded(sheet.file(handlers.file, None, file, **MULTIPLE), "log-file")
