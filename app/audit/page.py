"""The audit page: a prompt, its spans, the chain of tokens, and the selected token. The browser fills it."""

from __future__ import annotations

import gradio as gr

from app.audit.handlers import AuditHandlers, BranchHandlers, RereadingHandlers
from app.audit.panel import prompt_events, wire_settings
from app.audit.service import AuditService
from app.report.panel import place_downloads
from app.shared.components import place
from app.shared.events import EVENT, GENERATING, MULTIPLE, On, wire
from app.shared.settings_rail import CHANGED, SettingsRail, settings_rail
from app.shared.web import span_editor, topbar
from app.shared.wiring import Services

QUESTION = "Does a word like “elderly” change what the model writes?"
ANSWER = (
    "Type a text and run it. You see what the model writes with the marked words shown and with them masked, and what "
    "COFT makes of it."
)
TELLING = (
    (
        "An elderly applicant",
        "After school ended, an elderly applicant hoped to find a job at the factory. A few days later the manager",
    ),
    (
        "A traffic stop",
        "The police were at the gate and noticed a Black driver with a flat tyre. A minute later the officer gave a",
    ),
    ("Two candidates", "The manager met the two candidates. Maria was calm and polite. In the end she"),
)
"""Examples on the empty page: title and prompt."""

SESSION_EVENTS = ("open", "settle", "start", "step", "run", "more", "pause", "fork", "overhead")


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = AuditHandlers(services)
    topbar(services, "")
    with gr.Row(elem_classes=["audit"], elem_id="main"):
        with gr.Row(elem_classes=["panes"]):
            with gr.Column(elem_classes=["work"], min_width=0):
                gr.HTML(
                    f'<div class="opening"><h1 class="big">{QUESTION}</h1><p class="sub">{ANSWER}</p></div>',
                    apply_default_css=False,
                    elem_classes=["coft"],
                )
                editor = span_editor(TELLING)
                place("audit/transcript.html", "coft.session.place(element)", "transcript")
                # A component without content, because Gradio renders a component's whole template with each message.
                stage = gr.HTML(
                    html_template="<span></span>",
                    js_on_load=f"coft.session.mount(trigger, props, watch, {list(SESSION_EVENTS)})",
                    apply_default_css=False,
                    elem_id="transcript-wire",
                    elem_classes=["wire"],
                )
                finding = place(
                    "audit/finding.html",
                    "coft.finding.mount(element, trigger, props, watch, ['find', 'compare', 'skip'])",
                    "finding",
                )
                _branches(services)
                _rereading(services)
                place("audit/pictures.html", "coft.pictures.mount(element)", "pictures")
                spans = place(
                    "audit/contributions.html",
                    "coft.spans.mount(element, trigger, props, watch, ['contribute'])",
                    "contributions",
                )
            with gr.Column(elem_classes=["inspect"], min_width=0):
                place("audit/inspector.html", "coft.inspector.mount(element)", "inspector")
                place("audit/facts.html", "coft.inspector.facts(element)", "facts")
                for feature in services.features:
                    if feature.on_audit:
                        feature.place_panel(services)
        gr.HTML(
            html_template='<div class="summaryline flow wide"></div>',
            js_on_load="coft.frame.line(element)",
            apply_default_css=False,
            elem_classes=["coft", "foot"],
        )
        with gr.Column(elem_classes=["rail"], min_width=0):
            rail = settings_rail(services.settings, services[AuditService].masked_families)
    place_downloads(services)
    app.load(None, rail.inputs, None, js=CHANGED)
    wire(editor, prompt_events(handlers, editor, rail), MULTIPLE)
    _wire_session(handlers, stage, rail)
    answers = {"find": On(handlers.find, finding), "compare": On(handlers.compare, finding)}
    wire(finding, {**answers, "skip": On(handlers.pause, None)}, MULTIPLE)
    wire(spans, {"contribute": On(handlers.contribute, spans)}, {**EVENT, "trigger_mode": "once"})
    wire_settings(app, handlers, rail)


def _wire_session(handlers: AuditHandlers, stage: gr.HTML, rail: SettingsRail) -> None:
    events = {
        "open": On(handlers.open, [stage, *rail.inputs]),
        "settle": On(handlers.settle, rail.inputs),
        "start": On(handlers.start, stage, rail.inputs, GENERATING),
        "step": On(handlers.step, stage, settings=GENERATING),
        "run": On(handlers.run, stage, settings=GENERATING),
        "more": On(handlers.more, stage),
        "pause": On(handlers.pause, None),
        "fork": On(handlers.fork, stage, settings=GENERATING),
        "overhead": On(handlers.overhead, stage, settings=GENERATING),
    }
    wire(stage, events, MULTIPLE)


def _branches(services: Services) -> None:
    """Place the link between the tree in the transcript and its handlers."""
    handlers = BranchHandlers(services)
    link = gr.HTML(
        html_template="<div></div>",
        js_on_load="coft.branches.mount(element, trigger, props, watch, "
        "['tree', 'rename', 'ponder', 'prune', 'beside'])",
        apply_default_css=False,
        elem_id="branch-link",
        elem_classes=["offscreen"],
    )
    answers = (handlers.tree, handlers.rename, handlers.ponder, handlers.prune, handlers.beside)
    wire(link, {answer.__name__: On(answer, link) for answer in answers}, MULTIPLE)


def _rereading(services: Services) -> None:
    """Place and wire the panel that reads a chain at another lambda or alpha."""
    handlers = RereadingHandlers(services)
    script = "coft.rereading.mount(element, trigger, props, watch, ['reread', 'depart', 'halt'])"
    panel = place("audit/rereading.html", script, "rereading")
    events = {"reread": On(handlers.reread, panel), "depart": On(handlers.depart, panel, settings=GENERATING)}
    wire(panel, events, MULTIPLE)
    panel.halt(handlers.halt, None, None, **MULTIPLE)
