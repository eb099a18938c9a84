"""What every page with a prompt and a settings rail asks of the services: spans, masks, models and what fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import gradio as gr
from gradio.components import Component

from app.audit.service import AuditService
from app.audit.words import drift_badge, refused_message
from app.calibrate.service import CalibrationService
from app.lists.service import UserListService
from app.prompts.words import draft_message, preview_message, spans_from, spans_message
from app.sessions.service import SessionLibrary
from app.shared.audits import AuditSettings, CalibrationView, ReadingRequest
from app.shared.calibration_words import calibration_choices
from app.shared.errors import USER_ERRORS
from app.shared.events import EVENT, LATEST, On, or_refusal, or_told, packed, shown_to, told
from app.shared.markup import html
from app.shared.needs import READ, needs
from app.shared.settings_rail import (
    CHANGED,
    FIELDS,
    SETTINGS,
    SettingsRail,
    StoredChoices,
    as_kept,
    calibration_note,
    control_values,
    group_menu,
    layout_from,
    method_note,
    settings_from,
    settings_rail,
    updates_from,
    usual_settings,
    without_parameters,
)
from app.shared.wiring import Services
from app.tune.service import TuningService
from coft_core.errors import PromptTooLongError
from coft_core.model.loading import LoadingPhase
from coft_core.text.turns import ConversationError

LOADING_PHASES = {
    LoadingPhase.TOKENIZER: "reading the tokenizer",
    LoadingPhase.WEIGHTS: "reading the weights",
    LoadingPhase.DIGEST: "taking the digest of the weights",
    LoadingPhase.WARM_UP: "running it for the first time",
}

UNRELATED = tuple(name for name, said in SETTINGS.items() if not said.calibrated)
"""Settings that no calibration depends on."""

STRENGTH = ("lam", "alpha", "calibration_id", "group", "parameters")
TUNED_BY = tuple(name for name in FIELDS if name not in (*UNRELATED, *STRENGTH))
"""Settings with which the strengths that a tuning offers can change."""


STORED = ("calibration_id", "group", "user_list_id")
"""Controls whose choices come from the store."""


class SettingsHandlers:
    """What a page with a prompt and a rail asks of the services about both."""

    offers_to_proceed = False
    """Whether a box below the rail allows going on although the calibration does not fit."""

    def __init__(self, services: Services) -> None:
        self._audits = services[AuditService]
        self._calibrations = services[CalibrationService]
        self._user_lists = services[UserListService]
        self._tunings = services[TuningService]
        self._model = services.settings.model

    @shown_to(READ)
    def detect(self, event: gr.EventData, *values: object) -> str:
        """Find the sensitive spans of the prompt."""
        spans = self._audits.detect(event.prompt, settings_from(without_parameters(values)))
        return packed(event, spans_message(spans, event.prompt))

    @shown_to(READ)
    def preview(self, event: gr.EventData, *values: object) -> str:
        """Read the prompt as the masked branch does; one that is too long is told of beside it, as long as it is."""
        settings = settings_from(without_parameters(values))
        try:
            preview = self._audits.preview(event.prompt, spans_from(event.spans) or (), settings)
        except (PromptTooLongError, ConversationError) as error:
            return packed(event, refused_message(error))
        return packed(event, preview_message(preview, self._audits.context_length(settings.model)))

    @needs(READ)
    def describe_model(self, name: str) -> Iterator[str]:
        """Say where and how the model runs, from loading to loaded in one event, so that no late part of it comes."""
        yield '<p class="hint">Loading the model …</p>'
        try:
            for phase in self._audits.loading(name):
                needs = self._audits.needs(name)
                more = f" {needs.text}" if needs else ""
                yield f'<p class="hint">Loading the model: {LOADING_PHASES[phase]} …{more}</p>'
            model = self._audits.model(name)
        except USER_ERRORS as error:
            told(error)
            yield html('<p class="hint">Not loaded. {{ why }}</p>', why=error)
        else:
            yield html(
                """
                <details class="hint computed"><summary>{{ icon("chev", "chev") }}{{ model.note }}</summary>
                <p>{{ model.details }} {{ model.sentinel }}</p></details>""",
                model=model,
            )

    @needs(READ)
    def describe_calibration(self, *values: object) -> list[object]:
        """Say what the chosen calibration certifies with these settings, how it fits, and which groups it knows."""
        refused: list[object] = [gr.skip(), gr.skip(), gr.skip()]
        if self.offers_to_proceed:
            refused.append(gr.Checkbox(visible=False))
        return or_told(lambda: self._calibration(values)) or refused

    @needs(READ)
    def describe_method(self, *values: object) -> str:
        """Say what keeps the chosen method from running with its parameters, where no single field says it already."""
        return method_note(values)

    @needs(READ)
    def describe_tuned(self, *values: object) -> list[object]:
        """Say at which strength the chosen method was found to be best, if it was tuned."""
        tuned = or_told(lambda: self._tunings.tuned(settings_from(without_parameters(values))))
        if tuned is None:
            return ["", gr.Button(visible=False)]
        strengths = [("λ", tuned.lam), ("α", tuned.alpha), *tuned.parameters]
        note = html(
            '<p class="hint tnum">Tuned on {{ tuned.set_name }} (<a href="./tune">{{ tuned.run_name }}</a>): '
            "{{ strengths }}</p>",
            tuned=tuned,
            strengths=", ".join(f"{name} {value:g}" for name, value in strengths if isinstance(value, int | float)),
        )
        return [note, gr.Button(visible=True)]

    @needs(READ)
    def describe_drift(self, number: int) -> str:
        """Say whether the audits so far speak against the chosen calibration."""
        return or_told(lambda: drift_badge(self._calibrations.drift(number), number)) or "" if number else ""

    @shown_to(READ)
    def menu(self, *values: object) -> object:
        """Offer the calibrations that fit mask, model and policy first."""
        chosen = dict(zip(FIELDS, values, strict=True))
        fitting = layout_from(chosen), str(chosen["model"]), str(chosen["policy"])
        return gr.Dropdown(calibration_choices(self._calibrations.list(), *fitting))

    @shown_to(READ)
    def use_tuned(self, *values: object) -> list[object]:
        """Take over the tuned strength of the chosen method."""
        return self.updates(self._tunings.applied(settings_from(values)), self.stored())

    @shown_to(READ)
    def adopt(self, *values: object) -> list[object]:
        """Take over the settings that the chosen calibration was made with."""
        return self.updates(self._audits.adopt(settings_from(values)), self.stored())

    def stored(self) -> StoredChoices:
        """What the store offers the rail today."""
        return StoredChoices(
            self._calibrations.list(), self._user_lists.list(), self._audits.masked_families, self._model
        )

    def updates(self, settings: AuditSettings, stored: StoredChoices, kept: object = None) -> list[object]:
        """Updates that make the controls show settings, with what was typed before a reload."""
        known = settings.calibration_id in [item.id for item in stored.calibrations]
        view = self._read(settings) if known else None
        values = as_kept(control_values(settings, stored), kept)
        return updates_from(values, stored, view.groups if view else ())

    def _calibration(self, values: tuple[object, ...]) -> list[object]:
        settings = settings_from(without_parameters(values))
        fit, whole = self._audits.fit(settings), self._read(settings)
        groups = () if whole is None else whole.groups
        reading: CalibrationView | str | None = whole
        if settings.group in [group.name for group in groups]:
            reading = or_refusal(lambda: self._read(settings, settings.group))
        note = calibration_note(reading, fit, settings.policy)
        said: list[object] = [note, group_menu(groups, settings.group), gr.Button(visible=fit.adoptable)]
        return [*said, gr.Checkbox(visible=bool(fit.differences))] if self.offers_to_proceed else said

    def _read(self, settings: AuditSettings, group: str | None = None) -> CalibrationView | None:
        """The settings' calibration at their level, of one group alone if one is named."""
        number = settings.calibration_id
        return None if number is None else self._calibrations.view(number, ReadingRequest(settings.alpha, group=group))


class DraftHandlers(SettingsHandlers):
    """What a page asks that begins with the prompt, spans and settings of a stored session, or with none."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._library = services[SessionLibrary]

    def begun(self, event: gr.EventData) -> list[object]:
        """The message that fills the page, and updates of the rail's controls."""
        stored = self.stored()
        if event.session is None:
            usual = usual_settings(stored)
            blank = packed(event, {"kind": "blank", "settings": control_values(usual, stored)})
            updates = zip(FIELDS, self.updates(usual, stored), strict=True)
            # The other controls show the defaults already, and may have been moved since the page was asked for.
            return [blank, *(update if name in STORED else gr.skip() for name, update in updates)]
        draft = self._library.prefill(int(event.session))
        request = draft.request
        preview = or_refusal(lambda: self._audits.preview(request.prompt, request.spans or (), request.settings))
        message = draft_message(request, draft.notes, preview)
        message["settings"] = control_values(request.settings, stored)
        return [packed(event, message), *self.updates(request.settings, stored)]


def folded_settings(services: Services, name: str, defaults: AuditSettings | None = None) -> SettingsRail:
    """Place the settings of an audit, folded into one line that sums them up."""
    with (
        gr.Accordion("Settings", open=False, elem_classes=["fold", "settings-fold"], elem_id=f"{name}-settings"),
        gr.Column(elem_classes=["rail"], min_width=0),
    ):
        return settings_rail(services.settings, services[AuditService].masked_families, defaults)


def message_wire(name: str, script: str) -> gr.HTML:
    """Place what carries a page's messages.

    It has no content, because Gradio renders a component's whole template again with each message.
    """
    return gr.HTML(
        html_template="<span></span>", js_on_load=script, apply_default_css=False, elem_id=name, elem_classes=["wire"]
    )


def prompt_events(handlers: SettingsHandlers, editor: gr.HTML, rail: SettingsRail) -> dict[str, On]:
    """What answers the events of a prompt with its spans."""
    return {
        "detect": On(handlers.detect, editor, rail.inputs),
        "preview": On(handlers.preview, editor, rail.inputs),
    }


def wire_settings(
    app: gr.Blocks,
    handlers: SettingsHandlers,
    rail: SettingsRail,
    changed: str = CHANGED,
    further: Sequence[Component] = (),
) -> None:
    """Connect the rail's own events."""
    changes = {name: control.change for name, control in rail.controls.items()}
    gr.on([*changes.values()], None, rail.inputs, None, js=changed, trigger_mode="multiple")
    gr.on([changes["policy"], changes["parameters"]], handlers.describe_method, rail.inputs, rail.method_note, **LATEST)
    model, calibration = rail.controls["model"], rail.controls["calibration_id"]
    gr.on([changes["model"], app.load], handlers.describe_model, model, rail.model_note, **LATEST)
    described = [change for name, change in changes.items() if name not in UNRELATED]
    notes = [rail.calibration_note, rail.controls["group"], rail.adopt, *further]
    gr.on(described, handlers.describe_calibration, rail.inputs, notes, **LATEST)
    changes["calibration_id"](handlers.describe_drift, calibration, rail.drift_note, **LATEST)
    gr.on([changes["mask"], changes["model"], changes["policy"]], handlers.menu, rail.inputs, calibration, **LATEST)
    rail.adopt.click(handlers.adopt, rail.inputs, rail.inputs, **EVENT)
    tuned_by = [rail.controls[name].change for name in TUNED_BY]
    gr.on([*tuned_by, app.load], handlers.describe_tuned, rail.inputs, [rail.tuned_note, rail.use_tuned], **LATEST)
    rail.use_tuned.click(handlers.use_tuned, rail.inputs, rail.inputs, **EVENT)
