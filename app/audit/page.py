"""The audit page: a prompt, its spans, the chain of tokens, and the selected token."""

from __future__ import annotations

import time
from collections.abc import Iterator

import gradio as gr

from app.audit.events import EVENT, GENERATING, LATEST, MULTIPLE
from app.audit.handlers import AuditHandlers
from app.audit.parts import branch_link, contributions, inspector, rereading, span_editor, steps_chart, transcript
from app.audit.rereading import Departure, RereadRequest, departure_message, refusal_message, rereading_message
from app.audit.words import Message, beside_message, prune_message, tree_message
from app.bootstrap import Services
from app.review.log import VerdictRequest
from app.review.page import verdict_panel
from app.review.words import given_sentence, signed_verdict, verdicts_message
from app.shared import web as assets
from app.shared.audits import AuditSettings
from app.shared.events import On, downloaded, or_refusal, reply, shown, shown_stream, told_of_failure, wire
from app.shared.markup import pictures
from app.shared.settings_rail import CHANGED, SettingsRail, settings_rail
from app.shared.web import topbar


class BranchHandlers:
    """Every method builds one request and calls one service; the tree is read anew afterwards."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._audits = services.audits
        self._library = services.library

    @shown
    def tree(self, event: gr.EventData) -> Message:
        """Read the tree again, as seen from the shown branch."""
        return self._tree(event)

    @shown
    def rename(self, event: gr.EventData) -> Message:
        """Give a branch another name."""
        self._library.rename_branch(event.session, event.branch, str(event.name))
        return self._tree(event, said="Renamed.")

    @shown
    def ponder(self, event: gr.EventData) -> Message:
        """Say what pruning a branch would take along, or why it cannot be pruned."""
        return reply(event, prune_message(event.branch, self._library.prune_preview(event.session, event.branch)))

    @shown
    def prune(self, event: gr.EventData) -> Message:
        """Delete a branch and all that depart from it."""
        view = self._library.prune(event.session, event.branch)
        there = any(branch.id == event.shown for branch in view.branches)
        seen = self._audits.view(event.session, event.shown) if there else view
        return reply(event, {**tree_message(seen), "said": "Pruned."})

    @shown
    def beside(self, event: gr.EventData) -> Message:
        """Put two chains of the session beside each other, from where they part."""
        left, right = (self._audits.view(event.session, branch) for branch in event.pair)
        return reply(event, beside_message(left, right))

    def _tree(self, event: gr.EventData, said: str = "") -> Message:
        return reply(event, {**tree_message(self._audits.view(event.session, event.shown)), "said": said})


def branches_of(services: Services) -> None:
    """Place the link between the tree in the transcript and its handlers."""
    handlers = BranchHandlers(services)
    link = branch_link()
    answers = (handlers.tree, handlers.rename, handlers.ponder, handlers.prune, handlers.beside)
    wire(link, {answer.__name__: On(answer, link) for answer in answers}, MULTIPLE)


FRAME_SECONDS = 0.1
"""The way to a new audit is shown at most this often."""


class RereadingHandlers:
    """What the panel asks of the services; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._rereads = services.rereads
        self._audits = services.audits

    @shown
    def reread(self, event: gr.EventData) -> Message:
        """Read the chain; why it cannot be read is shown in the panel and not as an error."""
        found = or_refusal(lambda: rereading_message(self._rereads.read(_request(event))))
        if isinstance(found, str):
            return reply(event, refusal_message(found, event.session, event.branch))
        return reply(event, found)

    @shown_stream
    def depart(self, event: gr.EventData) -> Iterator[Message]:
        """Begin an audit at these settings and run it to the step at which it departs."""
        shown_at, found = 0.0, None
        for found in self._rereads.depart(_request(event)):
            if found.done or time.monotonic() - shown_at >= FRAME_SECONDS:
                yield _departure(event, found)
                shown_at = time.monotonic()

    @shown
    def halt(self, event: gr.EventData) -> None:
        """End the way to a new audit after its current token."""
        self._audits.pause(event.session)


def rereading_panel(services: Services) -> None:
    """Place the panel and wire it."""
    handlers = RereadingHandlers(services)
    panel = rereading()
    events = {"reread": On(handlers.reread, panel), "depart": On(handlers.depart, panel, settings=GENERATING)}
    wire(panel, events, MULTIPLE)
    panel.halt(handlers.halt, None, None, **MULTIPLE)  # type: ignore[attr-defined]


def _request(event: gr.EventData) -> RereadRequest:
    return RereadRequest(event.session, event.lam, event.alpha, event.branch)


def _departure(event: gr.EventData, found: Departure) -> Message:
    return reply(event, departure_message(found))


class VerdictHandlers:
    """What the panel asks for; every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the service."""
        self._verdicts = services.verdicts

    @shown
    def read(self, event: gr.EventData) -> Message:
        """What stands, as far as the reviewer may see it."""
        return reply(event, self._current(int(event.session), signed_verdict(event.reviewer)))

    @shown
    def give(self, event: gr.EventData) -> Message:
        """Write a verdict, or take one back, and say what stands now."""
        request = VerdictRequest(
            int(event.session), str(event.reviewer), event.verdict, event.branch, event.first, event.last,
            str(event.note), str(event.tag),
        )  # fmt: skip
        made = self._verdicts.add(request)
        now = self._current(request.session_id, made.reviewer)
        return reply(event, {**now, "said": given_sentence(made)})

    def _current(self, session_id: int, reviewer: str) -> Message:
        return verdicts_message(self._verdicts.current(session_id, reviewer or None), reviewer)


def verdict_part(services: Services) -> None:
    """Place the verdict panel and connect it."""
    handlers = VerdictHandlers(services)
    panel = verdict_panel()
    told_of_failure(panel.give(handlers.give, None, panel, **MULTIPLE), "verdict")  # type: ignore[attr-defined]
    told_of_failure(panel.read(handlers.read, None, panel, **MULTIPLE), "verdicts")  # type: ignore[attr-defined]


UNRELATED = ("greedy", "max_new_tokens", "seed")
"""Settings that no calibration depends on."""

TUNED_BY = (
    "policy",
    "model",
    "mask",
    "temperature",
    "top_p",
    "top_k",
    "sentinel",
    "mask_mode",
    "mask_hint",
    "whitelist",
    "prompt_format",
)
"""Settings that must be those of a tuning for its strengths to be offered."""


def audit_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = AuditHandlers(services)
    topbar("audit")
    gr.HTML(
        html_template='<h1 class="vh">Audit</h1><div class="summaryline"></div>',
        js_on_load="coft.frame.line(element)",
        apply_default_css=False,
        elem_classes=["coft"],
    )
    with gr.Row(elem_classes=["audit"], elem_id="main"):
        with gr.Column(elem_classes=["rail"], min_width=0):
            rail = settings_rail(AuditSettings(), services.audits.masked_families)
        with gr.Column(elem_classes=["work"], min_width=0):
            editor = span_editor(assets.examples(), assets.phantom_examples())
            stage = transcript()
            branches_of(services)
            rereading_panel(services)
            steps_chart()
            pictures()
            spans = contributions()
        with gr.Column(elem_classes=["inspect"], min_width=0):
            inspector()
            verdict_part(services)
    download = gr.DownloadButton("Report", elem_id="report-file", elem_classes=["offscreen"])
    app.load(None, rail.inputs, None, js=CHANGED)
    _wire_session(handlers, editor, stage, rail, download)
    wire(spans, {"contribute": On(handlers.contribute, spans)}, {**EVENT, "trigger_mode": "once"})
    wire_settings(app, handlers, rail)


def _wire_session(
    handlers: AuditHandlers, editor: gr.HTML, stage: gr.HTML, rail: SettingsRail, download: gr.DownloadButton
) -> None:
    settings = rail.inputs
    prompt = {
        "detect": On(handlers.detect, editor, settings),
        "preview": On(handlers.preview, editor, settings),
    }
    events = {
        "open": On(handlers.open, [stage, *settings]),
        "start": On(handlers.start, stage, settings, GENERATING),
        "step": On(handlers.step, stage, settings=GENERATING),
        "run": On(handlers.run, stage, settings=GENERATING),
        "more": On(handlers.more, stage),
        "pause": On(handlers.pause, None),
        "fork": On(handlers.fork, stage, settings=GENERATING),
        "overhead": On(handlers.overhead, stage, settings=GENERATING),
    }
    wire(editor, prompt, MULTIPLE)
    wire(stage, events, MULTIPLE)
    downloaded(stage.report(handlers.report, None, download, **MULTIPLE), "report-file")  # type: ignore[attr-defined]


def wire_settings(app: gr.Blocks, handlers: AuditHandlers, rail: SettingsRail) -> None:
    """Connect the rail's own events, for every page that has one."""
    changes = {name: control.change for name, control in rail.controls.items()}  # type: ignore[attr-defined]
    for change in changes.values():
        change(None, rail.inputs, None, js=CHANGED)
    gr.on([changes["policy"], changes["parameters"]], handlers.describe_method, rail.inputs, rail.method_note, **LATEST)
    model, calibration = rail.controls["model"], rail.controls["calibration_id"]
    gr.on([changes["model"], app.load], handlers.describe_model, model, rail.model_note, **LATEST)
    described = [change for name, change in changes.items() if name not in UNRELATED]
    notes = [rail.calibration_note, rail.controls["group"], rail.adopt]
    gr.on(described, handlers.describe_calibration, rail.inputs, notes, **LATEST)
    changes["calibration_id"](handlers.describe_drift, calibration, rail.drift_note, **LATEST)
    gr.on([changes["mask"], changes["model"], changes["policy"]], handlers.menu, rail.inputs, calibration, **LATEST)
    rail.adopt.click(handlers.adopt, rail.inputs, rail.inputs, **EVENT)
    wire_tuned(app, handlers, rail)


def wire_tuned(app: gr.Blocks, handlers: AuditHandlers, rail: SettingsRail) -> None:
    """Offer the strength that a tuning found for the chosen method."""
    tuned_by = [rail.controls[name].change for name in TUNED_BY]  # type: ignore[attr-defined]
    gr.on([*tuned_by, app.load], handlers.describe_tuned, rail.inputs, [rail.tuned_note, rail.use_tuned], **LATEST)
    rail.use_tuned.click(handlers.use_tuned, rail.inputs, rail.inputs, **EVENT)
