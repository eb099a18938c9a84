"""The endpoints that other programs call; their names and arguments stay."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.events import api

from app.services.plain import (
    contributions_json,
    session_json,
    span_json,
    step_json,
    summary_json,
    user_list_json,
    user_list_summary_json,
)
from app.services.ports import Services
from app.services.views import StartAudit
from app.ui.api_batches import batch_endpoints
from app.ui.api_calibrations import calibration_endpoints
from app.ui.api_compare import compare_endpoints
from app.ui.api_rereading import rereading_endpoints
from app.ui.api_swaps import swap_endpoints
from app.ui.api_verdicts import verdict_endpoints
from app.ui.errors import shown
from app.ui.presenters_api import audit_settings, user_list_request
from app.ui.presenters_session import spans_from

AT_ONCE = 4


class Endpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for reports that lives as long as the page."""
        self._services = services
        self._folder = tempfile.TemporaryDirectory(prefix="coft-reports-")

    @shown
    def detect_spans(self, text: str, settings: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Sensitive spans of a text: start, end (characters), category, source, detail, kept, score, suggested.

        Of the settings, masked_families, user_list_id and whitelist count. A suggested span is not masked.
        """
        return [span_json(span) for span in self._services.audits.detect(text, audit_settings(settings))]

    @shown
    def start_audit(
        self, prompt: str, spans: list[dict[str, Any]] | None = None, settings: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Begin an audit session without a step; without spans, the detector finds them.

        Settings are those of the page: model, policy, calibration_id, group, lam, alpha, temperature, top_p, top_k,
        greedy, seed, max_new_tokens, sentinel, proceed_uncertified, masked_families, user_list_id, mask_layout (joint
        or factorized), mask_mode (hard or soft), mask_hint, whitelist.
        """
        request = StartAudit(prompt, audit_settings(settings), spans_from(spans))
        return session_json(self._services.audits.start(request))

    @shown
    def step(self, session_id: int) -> dict[str, Any]:
        """Write one token on the session's active branch; ``step`` is null when the chain is finished."""
        made = self._services.audits.step(int(session_id))
        return {"session_id": int(session_id), "step": None if made is None else step_json(made)}

    @shown
    def run_to_end(self, session_id: int) -> dict[str, Any]:
        """Write tokens on the session's active branch until it is finished, and return the session."""
        for _ in self._services.audits.run(int(session_id)):
            pass
        return session_json(self._services.audits.view(int(session_id)))

    @shown
    def fork(self, session_id: int, branch_id: int, step: int, token: str) -> dict[str, Any]:
        """Depart from a branch at a step (counted from 1) with another token, and return the session."""
        return session_json(self._services.audits.fork(int(session_id), int(branch_id), int(step) - 1, token))

    @shown
    def contributions(self, session_id: int, branch_id: int | None = None) -> dict[str, Any]:
        """What each masked span contributes to each token of a branch's chain (the active one by default).

        Runs the model again. Steps count from 1; contributions need not sum to the total.
        """
        branch = None if branch_id is None else int(branch_id)
        return contributions_json(self._services.audits.contributions(int(session_id), branch))

    @shown
    def list_sessions(self, search: str = "") -> list[dict[str, Any]]:
        """Past audit sessions whose name or prompt contains the search text, newest first."""
        return [summary_json(item) for item in self._services.audits.sessions(search)]

    @shown
    def user_lists(self, name: str = "") -> list[dict[str, Any]]:
        """Word lists without their terms; with a name, that list alone, with its terms."""
        if name:
            return [user_list_json(self._services.user_lists.named(name))]
        return [user_list_summary_json(item) for item in self._services.user_lists.list()]

    @shown
    def remove_user_list(self, name: str) -> None:
        """Remove a word list that neither a calibration nor a running job uses."""
        self._services.user_lists.delete(self._services.user_lists.named(name).summary.id)

    @shown
    def add_user_list(self, file: str, settings: dict[str, Any] | None) -> dict[str, Any]:
        """Store a CSV (term, family, action) or TXT as a word list; settings: name, action, family, replace."""
        request = user_list_request(Path(file).stem, settings)
        parsed = self._services.user_lists.parse(Path(file), Path(file).name, request.action, request.family)
        return user_list_json(self._services.user_lists.add(request.name, parsed, request.replace))

    @shown
    def export_csv(self, session_id: int) -> str:
        """The report of a session as a CSV file."""
        return str(self._services.reports.write_csv(int(session_id), Path(self._folder.name)))


def endpoints(services: Services) -> None:
    """Register the endpoints."""
    calls = Endpoints(services)
    for method in (
        calls.detect_spans,
        calls.start_audit,
        calls.step,
        calls.run_to_end,
        calls.fork,
        calls.contributions,
        calls.list_sessions,
        calls.user_lists,
        calls.remove_user_list,
    ):
        api(method, api_name=method.__name__, api_description=method.__doc__, concurrency_limit=AT_ONCE)
    rereading_endpoints(services)
    swap_endpoints(services)
    compare_endpoints(services)
    verdict_endpoints(services)
    with gr.Group(visible=False):
        prompts = gr.File(label="file")
        settings = gr.JSON(label="settings")
        session = gr.Number(label="session_id", precision=0)
        report = gr.File(label="report")
        stored = gr.JSON(label="user_list")
        export, add = gr.Button(), gr.Button()
        calibration_endpoints(services, prompts, settings)
        batch_endpoints(services, prompts, settings)
    add.click(calls.add_user_list, [prompts, settings], stored, api_name="add_user_list", concurrency_limit=AT_ONCE)
    export.click(calls.export_csv, session, report, api_name="export_csv", concurrency_limit=AT_ONCE)
