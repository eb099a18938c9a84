"""The parts of the swap page: what is exchanged, the variants, and what follows them. The browser fills them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import gradio as gr

from app.audit.events import GENERATING, MULTIPLE, packed
from app.audit.handlers import AuditHandlers
from app.audit.page import wire_settings
from app.audit.parts import span_editor
from app.audit.words import Message, draft_message, spans_from
from app.bootstrap import Services
from app.shared import web as assets
from app.shared.audits import AuditSettings, ReadingRequest
from app.shared.events import On, downloaded, or_refusal, reply, shown, shown_stream, wire
from app.shared.markup import icon
from app.shared.settings_rail import (
    CHANGED,
    FIELDS,
    SettingsRail,
    Stored,
    control_values,
    default_calibration,
    settings_from,
    settings_rail,
    updates_from,
    without_parameters,
)
from app.shared.web import topbar
from app.swap.service import SwapCancelled
from app.swap.types import SwapRequest, SwapResult, SwapTargets
from app.swap.words import empty_swap_figure, form_message, offered_for, progress_message, result_message, swap_request
from coft_core.errors import CalibrationMismatch

EVENTS = "['open', 'look', 'run', 'cancel', 'at', 'audit', 'table']"
USUAL_LENGTH = 12
LONGEST = 256


def swap_choices() -> None:
    """Place the choice of spans, pronouns and groups."""
    pronouns = "".join(
        f'<label class="tickbox"><input type="checkbox" data-pronoun="{name}"> {name}</label>'
        for name in ("she", "he", "they")
    )
    gr.HTML(
        html_template=f"""<section aria-labelledby="h-exchange" class="exchange">
        <div class="bar"><h2 id="h-exchange">What is exchanged</h2></div>
        <p class="sub nothing">The marked words of your prompt appear here. Type a prompt that names a person’s gender,
          origin, religion or another attribute, or take an example.</p>
        <div class="choices" hidden>
          <fieldset class="spans"><legend>Words that are replaced</legend><div class="boxes"></div>
            <p class="hint">Unticked words stay as they are in every variant.</p></fieldset>
          <fieldset class="sets"><legend>Pronouns</legend><div class="boxes">{pronouns}</div>
            <p class="hint why"></p></fieldset>
          <fieldset class="roles" hidden><legend>How pronouns are read</legend><div class="list"></div></fieldset>
          <fieldset class="groups" hidden><legend>Groups</legend>
            <div class="family"><label for="swap-family">In place of words of</label>
              <select id="swap-family" class="select small"></select></div>
            <ul class="picked" aria-label="Groups that are put in place"></ul>
            <form class="own"><label class="vh" for="swap-own">A group in your own words</label>
              <input id="swap-own" class="input" autocomplete="off" maxlength="80"
                placeholder="a group in your own words">
              <button class="btn">Add</button></form>
            <p class="hint nohints" hidden>The word lists have no suggestions for this family; write your own.</p>
            <div class="offered"></div></fieldset>
          <label class="tickbox typed"><input type="checkbox" id="swap-original" checked> Compare with the prompt as
            typed</label>
        </div></section>""",
        js_on_load="coft.swap.choices(element)",
        apply_default_css=False,
        elem_id="swap-choices",
        elem_classes=["coft"],
    )


def swap_stage() -> gr.HTML:
    """Place the variants, what runs them, the head of the result, and the page's wire to the server.

    Returns:
        The wire: it triggers everything of the page and receives its messages. It is a component without content,
        because Gradio renders a component's whole template anew with each message.
    """
    gr.HTML(
        html_template=f"""<section aria-labelledby="h-variants">
        <div class="bar"><h2 id="h-variants">Variants</h2><span class="hint tnum many" role="status"></span></div>
        <p class="sub refusal">The variants of your prompt appear here.</p><div class="texts" aria-busy="false"></div>
        <ul class="cautions"></ul>
        <div class="runbar">
          <div class="field"><label for="swap-length">Tokens in each chain</label>
            <input id="swap-length" class="input tnum" type="number" min="1" max="{LONGEST}"
              value="{USUAL_LENGTH}"></div>
          <div class="field"><label for="swap-answer">Compared token</label>
            <input id="swap-answer" class="input tnum" type="number" min="1" max="{LONGEST}" value="1"
              aria-describedby="answer-hint"></div>
          <button type="button" class="btn primary" data-do="run" disabled>{icon("run")}Compare</button>
          <button type="button" class="btn" data-do="cancel" hidden>Cancel</button>
          <div class="doing" aria-hidden="true"><div class="progress"><i></i></div></div>
          <span class="hint told" role="status"></span>
          <p class="hint below" id="answer-hint">The answer: 1 is the first token after the prompt.</p></div>
        <div class="notice" role="alert" hidden></div></section>
        <section class="found" aria-labelledby="h-found" hidden>
          <div class="bar"><h2 id="h-found" tabindex="-1">What the exchange changes</h2>
            <label class="hint" for="swap-at">Compared token</label>
            <input id="swap-at" class="input small tnum" type="number" min="1" value="1">
            <span class="hint tnum of"></span><span class="hint rereads" role="status"></span>
            <span class="end"><button type="button" class="btn small quiet" data-do="picture" data-format="png"
              >{icon("down")}Picture (PNG)</button>
            <button type="button" class="btn small quiet" data-do="picture" data-format="svg">SVG</button>
            <button type="button" class="btn small quiet" data-do="table" data-table="tokens"
              >{icon("down")}Tokens (CSV)</button>
            <button type="button" class="btn small quiet" data-do="table" data-table="distances"
              >{icon("down")}Distances (CSV)</button></span></div>
          <div class="notice stale" role="status" hidden>These results belong to the choices as they were; compare again
            for the new ones.</div>
          <div class="summing"></div><ul class="check remarks"></ul>
          <div class="charthead"><h3>How likely each answer is</h3><span class="hint captioned"></span></div></section>
        <div class="empty teach"><p>Choose what is exchanged, then press <strong>Compare</strong>. Every variant is
          continued twice from the same seed: by the model alone, and under the policy.</p>
          <ol><li>You see how likely each answer is in every variant: visible, after fusion, and masked.</li>
            <li>A number says how far apart the variants are, before and after the policy.</li>
            <li>Any of the chains can be opened as an audit of its own.</li></ol></div>""",
        js_on_load="coft.swap.stage(element)",
        apply_default_css=False,
        elem_id="swap-stage",
        elem_classes=["coft"],
    )
    return gr.HTML(
        html_template="<span></span>",
        js_on_load=f"coft.swap.mount(trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="swap-wire",
        elem_classes=["wire"],
    )


def swap_body() -> None:
    """Place what stands under the chart: distances, chains and numbers."""
    gr.HTML(
        html_template='<div class="rest"></div>',
        js_on_load="coft.swap.body(element)",
        apply_default_css=False,
        elem_id="swap-body",
        elem_classes=["coft"],
    )


FRAME_SECONDS = 0.15
"""Progress is shown at most this often."""


CHOICES = ("calibration_id", "group", "user_list_id")
"""Controls whose choices come from the store."""


class SwapHandlers:
    """Every method builds one request and calls one service."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for tables that lives as long as the page."""
        self._swaps = services.swaps
        self._audits = services.audits
        self._library = services.library
        self._calibrations = services.calibrations
        self._user_lists = services.user_lists
        self._folder = tempfile.TemporaryDirectory(prefix="coft-swaps-")

    @shown
    def open(self, event: gr.EventData) -> list[object]:
        """Take over a stored session's prompt, spans and settings, or begin with nothing."""
        stored = Stored(self._calibrations.list(), self._user_lists.list(), self._audits.masked_families)
        if event.session is None:
            settings = AuditSettings(calibration_id=default_calibration(stored.calibrations, None))
            message, *updates = self._opened(event, {"kind": "blank"}, settings, stored)
            # The other controls show the defaults already, and may have been moved since the page was asked for.
            return [message, *(u if name in CHOICES else gr.skip() for name, u in zip(FIELDS, updates, strict=True))]
        made = self._library.prefill(int(event.session))
        request = made.request
        preview = or_refusal(lambda: self._audits.preview(request.prompt, request.spans or (), request.settings))
        return self._opened(event, draft_message(made, preview), request.settings, stored)

    @shown
    def look(self, event: gr.EventData, *values: object) -> Message:
        """Say what of the prompt can be replaced, and show the variants as chosen."""
        request, targets = self._request(event, without_parameters(values))
        variants = or_refusal(lambda: self._swaps.variants(request))
        offers = self._swaps.offers(request.category or "", offered_for(targets, request.category))
        return reply(event, form_message(targets, request.category, offers, variants))

    @shown_stream
    def run(self, event: gr.EventData, *values: object) -> Iterator[Message | str]:
        """Compare the variants; a calibration of another policy is told apart, because one may proceed."""
        request, _ = self._request(event, values)
        told = -FRAME_SECONDS
        try:
            for item in self._swaps.run(request):
                if isinstance(item, SwapResult):
                    yield packed(event, result_message(item))
                elif time.monotonic() - told >= FRAME_SECONDS:
                    told = time.monotonic()
                    yield reply(event, progress_message(item))
        except SwapCancelled:
            yield reply(event, {"kind": "cancelled"})
        except CalibrationMismatch as mismatch:
            yield reply(event, {"kind": "mismatch", "text": str(mismatch)})

    @shown
    def cancel(self, event: gr.EventData) -> None:
        """End a comparison after its current token."""
        self._swaps.cancel(int(event.number))

    @shown
    def at(self, event: gr.EventData) -> str:
        """Compare another token of the chains that are there."""
        return packed(event, result_message(self._swaps.at(int(event.number), int(event.answer) - 1)))

    @shown
    def audit(self, event: gr.EventData) -> Message:
        """Begin a session that makes the same chain."""
        outcome = self._swaps.at(int(event.number), int(event.answer) - 1).outcomes[int(event.variant)]
        chain = outcome.vanilla if event.decoding == "vanilla" else outcome.policy
        return reply(event, {"kind": "opened", "session": self._audits.start(chain.start).session_id})

    @shown
    def table(self, event: gr.EventData) -> str:
        """Write a table for download."""
        kind, answer = event.table, int(event.answer) - 1
        return str(self._swaps.write_csv(int(event.number), answer, kind, Path(self._folder.name)))

    def _opened(self, event: gr.EventData, message: Message, settings: AuditSettings, stored: Stored) -> list[object]:
        """A message, and updates that make the controls show settings."""
        values = control_values(settings, stored)
        number = settings.calibration_id
        known = number is not None and number in [item.id for item in stored.calibrations]
        view = self._calibrations.view(number, ReadingRequest(settings.alpha)) if known and number else None
        updates = updates_from(values, stored, view.groups if view else ())
        return [reply(event, {**message, "settings": values}), *updates]

    def _request(self, event: gr.EventData, values: Sequence[object]) -> tuple[SwapRequest, SwapTargets]:
        """The browser's form as a request, and what of its prompt can be replaced."""
        spans = spans_from(event.form["spans"]) or ()
        targets = self._swaps.targets(str(event.form["prompt"]), spans)
        return swap_request(event.form, spans, targets, settings_from(values, bool(event.proceed))), targets


def swap_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    audits = AuditHandlers(services)
    topbar("swap")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        gr.HTML(
            '<div class="pagehead"><h1>Swap</h1><p class="sub">The same prompt with one attribute exchanged: what '
            "changes for the model alone, and what is left of it under the policy.</p></div>",
            apply_default_css=False,
            elem_classes=["coft"],
        )
        with gr.Row(elem_classes=["swapform"]):
            with gr.Column(min_width=0, elem_classes=["group"]):
                editor = span_editor(assets.examples(), assets.phantom_examples())
                rail = _settings(services)
            with gr.Column(min_width=0):
                swap_choices()
        stage = swap_stage()
        with gr.Column(elem_id="swap-found"):
            gr.Plot(empty_swap_figure(), show_label=False, container=False, elem_id="swap-plot", elem_classes=["chart"])
            swap_body()
    file = gr.DownloadButton("Table", elem_id="swap-file", elem_classes=["offscreen"])
    app.load(None, rail.inputs, None, js=CHANGED)
    wire_settings(app, audits, rail)
    _wire(SwapHandlers(services), audits, editor, stage, rail, file)


def _settings(services: Services) -> SettingsRail:
    """The settings of an audit, folded; the length of the chains is chosen beside the button that runs them."""
    with (
        gr.Accordion("Settings", open=False, elem_classes=["fold", "swap-settings"], elem_id="swap-settings"),
        gr.Column(elem_classes=["rail"], min_width=0),
    ):
        rail = settings_rail(AuditSettings(), services.audits.masked_families)
    rail.controls["max_new_tokens"].visible = False  # type: ignore[attr-defined]
    return rail


def _wire(
    handlers: SwapHandlers,
    audits: AuditHandlers,
    editor: gr.HTML,
    stage: gr.HTML,
    rail: SettingsRail,
    file: gr.DownloadButton,
) -> None:
    settings = rail.inputs
    prompt = {
        "detect": On(audits.detect, editor, settings),
        "preview": On(audits.preview, editor, settings),
    }
    events = {
        "open": On(handlers.open, [stage, *settings]),
        "look": On(handlers.look, stage, settings),
        "run": On(handlers.run, stage, settings, GENERATING),
        "cancel": On(handlers.cancel, None),
        "at": On(handlers.at, stage),
        "audit": On(handlers.audit, stage, settings=GENERATING),
        "table": On(handlers.table, file),
    }
    wire(editor, prompt, MULTIPLE)
    downloaded(wire(stage, events, MULTIPLE)["table"], "swap-file")
