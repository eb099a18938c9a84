"""The form of a new batch: its prompts, its settings, an estimate, and the run that it begins."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr

from app.bootstrap import Services
from app.services.errors import ServiceError
from app.services.views import PROMPT_SET_FIELDS, AuditSettings, CalibrationRequest, ParsedPromptSet
from app.services.views.batches import BatchRequest
from app.ui.components.rail_values import (
    Stored,
    control_values,
    default_calibration,
    known_policy,
    settings_from,
    updates_from,
    without_parameters,
)
from app.ui.errors import shown
from app.ui.pages.audit.handlers import AuditHandlers
from app.ui.pages.calibrate.common import NO_FILE
from app.ui.pages.calibrate.prompts import PromptHandlers
from app.ui.presenters_batches import estimate_line
from app.ui.presenters_form import columns_from
from app.ui.presenters_library import Message
from app.ui.presenters_prompt_set import accept_label, bad_rows, preview_rows, row_errors

OWN_FIELDS = ("name", "seeds", "by_group", "proceed")
"""What a batch has besides the settings of its sessions, in the order of the controls."""

SAME_SEED = "same"
UNTRIED = '<p class="hint">Counts prompts, groups and tokens, and says which rows the model cannot use.</p>'


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt set, and the batch that is asked of it."""

    prompts: ParsedPromptSet
    request: BatchRequest


class FormHandlers:
    """What the form asks of the services; values are the columns, then the batch's own fields, then the rail's."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and what other pages' handlers do already."""
        self._batches = services.batches
        self._calibrations = services.calibrations
        self._audits = services.audits
        self._user_lists = services.user_lists
        self.settings = AuditHandlers(services)
        self.prompts = PromptHandlers(services)
        self.prompts.samples = services.batches.samples()

    @shown
    def opened(self, request: gr.Request) -> list[object]:
        """The settings that a new batch begins with: the usual ones, under the asked-for calibration and policy."""
        asked_for = str(request.query_params.get("calibration", ""))
        stored = Stored(self._calibrations.list(), self._user_lists.list(), self._audits.masked_families)
        wanted = int(asked_for) if asked_for.isdigit() else None
        chosen = AuditSettings(
            policy=known_policy(request.query_params.get("policy")),
            calibration_id=default_calibration(stored.calibrations, wanted),
        )
        return updates_from(control_values(chosen, stored), stored)

    @shown
    def parse(self, path: str | None) -> list[Any]:
        """Read an uploaded prompt set, each field from the column of its name."""
        return [*self.prompts.parse(path)[:-1], UNTRIED]

    @shown
    def remap(self, path: str | None, *columns: str) -> list[Any]:
        """Read it again with the chosen columns."""
        return [*self.prompts.remap(path, *columns)[:-1], UNTRIED]

    @shown
    def preview(self, path: str | None, *values: Any) -> str:
        """The first rows as they will be masked."""
        if path is None:
            return ""
        what = self._asked(path, True, values)
        if "prompt" not in dict(what.prompts.mapping):
            return ""
        own = what.request.settings
        masking = CalibrationRequest(
            "", masked_families=own.masked_families, user_list_id=own.user_list_id, whitelist=own.whitelist
        )
        return preview_rows(self._calibrations.preview(what.prompts, masking), len(what.prompts.rows))

    @shown
    def check(self, path: str | None, *values: Any) -> list[Any]:
        """All rows that cannot be used, those included that only the model can tell."""
        what = self._asked(path, True, values)
        found = self._batches.row_errors(what.prompts, what.request)
        label = accept_label(what.prompts.total - bad_rows(found))
        return [row_errors(found, what.prompts.total), gr.Checkbox(visible=bool(found), label=label)]

    @shown
    def estimate(self, path: str | None, *values: Any) -> str:
        """What the run will take."""
        what = self._asked(path, True, values)
        return estimate_line(self._batches.estimate(what.prompts, what.request))

    @shown
    def submit(self, path: str | None, accept: bool, *values: Any) -> Message:
        """Begin the batch, and have the page open it."""
        what = self._asked(path, accept, values)
        return {"kind": "begun", "batch": self._batches.submit(what.prompts, what.request), "at": time.monotonic_ns()}

    @shown
    def describe_calibration(self, *values: object) -> list[object]:
        """What the rail says of the calibration, and the choice to go on without one that does not fit."""
        misfit = bool(self._audits.fit(settings_from(without_parameters(values))).differences)
        return [*self.settings.describe_calibration(*values), gr.Checkbox(visible=misfit)]

    def _asked(self, path: str | None, accept: bool, values: Sequence[Any]) -> Asked:
        """Read the prompt set as the form maps its columns, and make the form's request."""
        if path is None:
            raise ServiceError(NO_FILE)
        columns, rest = values[: len(PROMPT_SET_FIELDS)], values[len(PROMPT_SET_FIELDS) :]
        own = dict(zip(OWN_FIELDS, rest, strict=False))
        settings = settings_from(rest[len(OWN_FIELDS) :], bool(own["proceed"]))
        by_group = bool(own["by_group"])
        return Asked(
            self._batches.parse(Path(path), Path(path).name, columns_from(columns)),
            BatchRequest(
                name=str(own["name"] or "").strip() or Path(path).stem,
                settings=replace(settings, group=None) if by_group else settings,
                accept_errors=accept,
                same_seed=own["seeds"] == SAME_SEED,
                group_thresholds=by_group,
            ),
        )
