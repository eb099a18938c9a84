"""The endpoints that other programs call; their names and arguments stay."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from app.audit.rereading import RereadRequest, rereading_json
from app.batch.operations import batch_endpoints
from app.bootstrap import Services
from app.calibrate.operations import calibration_endpoints
from app.compare.operations import compare_endpoints
from app.review.operations import verdict_endpoints
from app.shared.audits import StartAudit
from app.shared.events import offer, offer_with_files, optional_object, shown
from app.shared.json import (
    contributions_json,
    session_json,
    span_json,
    step_json,
    summary_json,
    user_list_json,
    user_list_summary_json,
)
from app.shared.policy_menu import policies_json
from app.shared.prompt_words import spans_from
from app.shared.settings_json import settings_from_json, user_list_request
from app.swap.operations import swap_endpoints
from app.tune.operations import tuning_endpoints


class RereadingEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._rereads = services.rereads

    @shown
    def reread_audit(
        self, session: int, lam: float | None = None, alpha: float | None = None, branch: int | None = None
    ) -> dict[str, Any]:
        """Read a stored audit at another lambda or alpha, without the model; what is left out stays the audit's own.

        Each step is read after the tokens that stand before it, so that what follows the first step with another
        token is a reading of the old text and not what would be written.

        Args:
            session: The session.
            lam: Fusion weight.
            alpha: Risk level.
            branch: The branch; without one, the active branch.

        Returns:
            The steps as they read now; differs and certified are null where they hang on logits that were not kept.
        """
        request = RereadRequest(int(session), _number(lam), _number(alpha), None if branch is None else int(branch))
        return rereading_json(self._rereads.read(request))


def rereading_endpoints(services: Services) -> None:
    """Register the endpoint."""
    offer(RereadingEndpoints(services).reread_audit)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


class Endpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for reports that lives as long as the page."""
        self._services = services
        self._folder = tempfile.TemporaryDirectory(prefix="coft-reports-")

    @shown
    def detect_spans(self, text: str, settings: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Find the words of a text that name a protected attribute; nothing is stored.

        Args:
            text: The text, exactly as it would be audited.
            settings: Of the settings of start_audit, masked_families, user_list_id and whitelist count.

        Returns:
            A list of spans, each with start and end (characters), category, source, detail, kept, score and suggested;
            a kept or suggested span is not masked.
        """
        return [span_json(span) for span in self._services.audits.detect(text, settings_from_json(settings))]

    @shown
    def start_audit(
        self, prompt: str, spans: list[dict[str, Any]] | None = None, settings: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Begin an audit session without a step.

        Args:
            prompt: The text that the model continues.
            spans: Sensitive spans, as detect_spans returns them; of each, start, end and category are needed. Without
                them the detector finds them.
            settings: All optional: model, policy (a key that policies lists; coft), parameters (an object with the
                policy's own parameters by name), calibration_id (without one, nothing is certified), group, lam, alpha,
                temperature, top_p, top_k, greedy, seed, max_new_tokens, sentinel, proceed_uncertified,
                masked_families, user_list_id, mask_layout (joint or factorized), mask_mode (hard or soft), mask_hint,
                whitelist, prompt_format (auto, chat or plain) and chat_date (a day such as 2026-11-21, for a chat
                template that prints the date).

        Returns:
            The session: session_id, branch_id, prompt, spans, settings, certificate, text, steps, chain, branches,
            warnings and others.
        """
        request = StartAudit(prompt, settings_from_json(settings), spans_from(spans))
        return session_json(self._services.audits.start(request))

    @shown
    def policies(self) -> list[dict[str, Any]]:
        """List the decoding methods that an audit can be made with.

        Returns:
            A list of policies, each with key, name, about, source, differs (from what its authors published), kind,
            fuses (whether lam counts), certifies (whether it takes a calibration), certified_in, layouts, group and
            parameters; a parameter has name, kind, default, title, help, low, high, step, choices, strength and
            optional.
        """
        return policies_json()

    @shown
    def step(self, session_id: int) -> dict[str, Any]:
        """Write one token on the session's active branch.

        Args:
            session_id: The session.

        Returns:
            session_id, and step with the token, its probabilities, threshold and candidates; step is null when the
            chain is finished.
        """
        made = self._services.audits.step(int(session_id))
        return {"session_id": int(session_id), "step": None if made is None else step_json(made)}

    @shown
    def run_to_end(self, session_id: int) -> dict[str, Any]:
        """Write tokens on the session's active branch until it is finished.

        Args:
            session_id: The session.

        Returns:
            The session with all steps of the branch, see start_audit.
        """
        for _ in self._services.audits.run(int(session_id)):
            pass
        return session_json(self._services.audits.view(int(session_id)))

    @shown
    def fork(self, session_id: int, branch_id: int, step: int, token: str) -> dict[str, Any]:
        """Depart from a branch with another token; the new branch becomes the session's active one.

        Args:
            session_id: The session.
            branch_id: The branch that is departed from; it stays as it is.
            step: The step that gets another token, counted from 1.
            token: The token's text, with its leading space if it has one.

        Returns:
            The session with the chain of the new branch, see start_audit.
        """
        return session_json(self._services.audits.fork(int(session_id), int(branch_id), int(step) - 1, token))

    @shown
    def contributions(self, session_id: int, branch_id: int | None = None) -> dict[str, Any]:
        """Measure what each masked span contributes to each token of a chain; runs the model again.

        Args:
            session_id: The session.
            branch_id: The branch; without one, the active branch.

        Returns:
            steps (counted from 1), and for the whole mask and each span the change of each token; contributions need
            not sum to the total.
        """
        branch = None if branch_id is None else int(branch_id)
        return contributions_json(self._services.audits.contributions(int(session_id), branch))

    @shown
    def list_sessions(self, search: str = "") -> list[dict[str, Any]]:
        """List past audit sessions.

        Args:
            search: Only sessions whose name or prompt contains this text.

        Returns:
            A list of sessions without their steps, newest first.
        """
        return [summary_json(item) for item in self._services.audits.sessions(search)]

    @shown
    def user_lists(self, name: str = "") -> list[dict[str, Any]]:
        """List word lists, whose terms win over what is detected.

        Args:
            name: Only the list of this name, with its terms.

        Returns:
            A list of word lists: user_list_id, name, terms (their number, or with a name the terms) and others.
        """
        if name:
            return [user_list_json(self._services.user_lists.named(name))]
        return [user_list_summary_json(item) for item in self._services.user_lists.list()]

    @shown
    def remove_user_list(self, name: str) -> None:
        """Remove a word list that neither a calibration nor a running job uses.

        Args:
            name: The list's name.

        Returns:
            Nothing.
        """
        self._services.user_lists.delete(self._services.user_lists.named(name).summary.id)

    @shown
    def add_user_list(self, file: str, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        """Store a file as a word list.

        Args:
            file: CSV with the columns term, family and action, or TXT with one term a line.
            settings: All optional: name (else the file's), action (mask or keep) and family for terms that name none,
                replace (true takes the place of a list of the same name).

        Returns:
            The word list with its terms.
        """
        request = user_list_request(Path(file).stem, settings)
        parsed = self._services.user_lists.parse(Path(file), Path(file).name, request.action, request.family)
        return user_list_json(self._services.user_lists.add(request.name, parsed, request.replace))

    @shown
    def export_csv(self, session_id: int) -> str:
        """Write the report of a session.

        Args:
            session_id: The session.

        Returns:
            A CSV file with one row for each step of all branches, and every number and setting in it.
        """
        return str(self._services.reports.write_csv(int(session_id), Path(self._folder.name)))


def endpoints(services: Services) -> None:
    """Register the endpoints."""
    calls = Endpoints(services)
    for method in (
        calls.detect_spans,
        calls.policies,
        calls.start_audit,
        calls.step,
        calls.run_to_end,
        calls.fork,
        calls.contributions,
        calls.list_sessions,
        calls.user_lists,
        calls.remove_user_list,
    ):
        offer(method)
    rereading_endpoints(services)
    swap_endpoints(services)
    verdict_endpoints(services)
    with gr.Group(visible=False):
        prompts = gr.File(label="file")
        settings = optional_object("settings")
        session = gr.Number(label="session_id", precision=0)
        report = gr.File(label="report")
        stored = gr.JSON(label="user_list")
        calibration_endpoints(services, prompts, settings)
        tuning_endpoints(services, prompts, settings)
        batch_endpoints(services, prompts, settings)
        compare_endpoints(services, prompts, settings)
        offer_with_files(calls.add_user_list, [prompts, settings], stored)
        offer_with_files(calls.export_csv, [session], report)
