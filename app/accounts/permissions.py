"""What each role may do: one table of routes, operations, pages and what their handlers do.

Each role may do what those before it may: a viewer reads and exports, a reviewer audits and judges, a lead also
starts long work over many prompts and manages what it needs, and an admin also manages accounts. What stands in no row
is refused: a route by everybody, an operation by all but admins, a page's event by those who may not work on its page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from starlette.routing import compile_path

from db.accounts import ROLES, Role


@dataclass(frozen=True, slots=True)
class Need:
    """What it takes to do something."""

    role: Role | None
    trailed: bool = True

    def allows(self, role: Role) -> bool:
        """Whether an account of a role may do it."""
        return self.role is not None and ROLES.index(role) >= ROLES.index(self.role)


READ, EXPORT = Need("viewer", trailed=False), Need("viewer")
LOOK, WORK = Need("reviewer", trailed=False), Need("reviewer")
LEAD, ADMIN = Need("lead"), Need("admin")
NOBODY = Need(None)

MAY: Mapping[Role, str] = {
    "viewer": "read and export",
    "reviewer": "read, audit and judge",
    "lead": "audit, judge, start long work and assign reviews",
    "admin": "do everything, and manage accounts",
}
"""What a role may do, to go on after "may"."""

Rule = Need | Literal["open", "event", "tools"]
"""``open`` needs no account; for ``event`` and ``tools`` the request's content says what is asked for."""

ROUTES: tuple[tuple[str, Rule], ...] = (
    # Signing in, and what the pages consist of: scripts, styles and pictures, which are the same for everybody.
    ("/sign-in", "open"),
    ("/sign-in/{path:path}", "open"),
    ("/sign-out", "open"),
    ("/account", READ),
    ("/account/project", READ),
    ("/account/limits", READ),
    ("/account/sign-ins", READ),
    ("/account/sign-ins/end", READ),
    ("/account/password", READ),
    ("/own/{digest}/{path:path}", "open"),
    ("/static/{path:path}", "open"),
    ("/assets/{path:path}", "open"),
    ("/svelte/{path:path}", "open"),
    ("/favicon.ico", "open"),
    ("/robots.txt", "open"),
    ("/manifest.json", "open"),
    ("/theme.css", "open"),
    # What those outside check the signatures of bundles with.
    ("/public-key.pem", "open"),
    # What a proxy asks before it sends anybody here; whoever asks for the figures sends the token of an account.
    ("/health", "open"),
    ("/ready", "open"),
    ("/metrics", READ),
    ("/gradio_api/theme.css", "open"),
    # Gradio asks itself for this when it is launched: it starts the queue, once.
    ("/gradio_api/startup-events", "open"),
    # What pages ask for beside their events.
    ("/config", READ),
    ("/jobs", READ),
    ("/jobs/seen", READ),
    ("/jobs/dismissed", READ),
    ("/address", READ),
    ("/address/{page:path}", READ),
    ("/audit/chain", READ),
    ("/endpoints", READ),
    ("/gradio_api/info", READ),
    ("/gradio_api/openapi.json", READ),
    ("/openapi.json", READ),
    ("/gradio_api/app_id", READ),
    ("/gradio_api/heartbeat/{session_hash}", READ),
    ("/gradio_api/reset", READ),
    ("/gradio_api/cancel", READ),
    ("/gradio_api/queue/status", READ),
    ("/gradio_api/queue/data", READ),
    ("/gradio_api/upload", READ),
    ("/gradio_api/upload_progress", READ),
    ("/gradio_api/file={path_or_url:path}", READ),
    ("/gradio_api/file/{path:path}", READ),
    # Events of pages and operations.
    ("/gradio_api/queue/join", "event"),
    ("/gradio_api/run/{api_name}", "event"),
    ("/gradio_api/api/{api_name}", "event"),
    ("/gradio_api/call/v2/{api_name}", "event"),
    ("/gradio_api/call/{api_name}", "event"),
    ("/gradio_api/call/v2/{api_name}/{event_id}", READ),
    ("/gradio_api/call/{api_name}/{event_id}", READ),
    ("/gradio_api/mcp", "tools"),
    ("/gradio_api/mcp/{path:path}", "tools"),
    # Completions in the shape of OpenAI's interface.
    ("/v1/models", READ),
    ("/v1/completions", WORK),
    ("/v1/chat/completions", WORK),
    # What Gradio can do, and this program does not use.
    ("/login", NOBODY),
    ("/logout", NOBODY),
    ("/pwa_icon", NOBODY),
    ("/pwa_icon/{size}", NOBODY),
    ("/monitoring", NOBODY),
    ("/monitoring/summary", NOBODY),
    ("/monitoring/{key}", NOBODY),
    ("/gradio_api/deep_link", NOBODY),
    ("/gradio_api/user", NOBODY),
    ("/gradio_api/token", NOBODY),
    ("/gradio_api/login_check", NOBODY),
    ("/gradio_api/dev/reload", NOBODY),
    ("/gradio_api/proxy={url_path:path}", NOBODY),
    ("/gradio_api/component_server", NOBODY),
    ("/gradio_api/custom_component/{id}/{environment}/{type}/{file_name}", NOBODY),
    ("/gradio_api/process_recording", NOBODY),
    ("/gradio_api/runs", NOBODY),
    ("/gradio_api/run-history/{path:path}", NOBODY),
    ("/gradio_api/stream/{path:path}", NOBODY),
    ("/gradio_api/profiling/{path:path}", NOBODY),
    ("/gradio_api/vibe-edit", NOBODY),
    ("/gradio_api/undo-vibe-edit", NOBODY),
    ("/gradio_api/vibe-code", NOBODY),
    ("/gradio_api/vibe-starter-queries", NOBODY),
)


def _each(need: Need, names: str) -> dict[str, Need]:
    return dict.fromkeys(names.split(), need)


OPERATIONS: Mapping[str, Need] = {
    **_each(READ, "detect_spans policies reread_audit read_calibration list_calibrations job drift compare_sessions"),
    **_each(READ, "comparison_summary list_tunings evaluation_suites evaluation_sets estimate_evaluation"),
    **_each(READ, "list_experiments experiment_tables list_evaluations show_evaluation evaluation_outcomes"),
    **_each(READ, "evaluation_coefficients list_paths sampled_paths batch_summary list_sessions list_verdicts"),
    **_each(READ, "deleted_verdict_logs team_agreement list_assignments list_disagreements user_lists signing_key"),
    # Of one's own account; of others they take an admin, which is asked where it is done.
    **_each(READ, "list_sign_ins end_sign_ins"),
    **_each(EXPORT, "evaluation_table export_evaluation formal_batch_report export_csv formal_report"),
    **_each(LOOK, "contributions"),
    **_each(WORK, "start_audit step run_to_end fork swap_attribute sample_paths open_path open_evaluation_item"),
    **_each(WORK, "run_comparison add_verdict add_comment"),
    **_each(LEAD, "calibrate tune run_evaluation resume_evaluation cancel_evaluation delete_evaluation run_batch"),
    **_each(LEAD, "assign_reviews withdraw_assignments add_user_list remove_user_list import_bundle move_sessions"),
    **_each(ADMIN, "list_accounts disk_use invite_account reset_password change_role disable_account enable_account"),
    **_each(
        ADMIN,
        "list_tokens revoke_token list_projects add_project rename_project delete_project add_member remove_member",
    ),
    **_each(ADMIN, "export_trail"),
}
"""By the name under which programs, agents and completions' callers ask."""


@dataclass(frozen=True, slots=True)
class PageNeeds:
    """What a page takes."""

    opening: Need
    working: Need


PAGES: Mapping[str, PageNeeds] = {
    "": PageNeeds(READ, WORK),
    "calibrate": PageNeeds(READ, LEAD),
    "compare": PageNeeds(READ, WORK),
    "tune": PageNeeds(READ, LEAD),
    "evaluate": PageNeeds(READ, LEAD),
    "swap": PageNeeds(READ, WORK),
    "paths": PageNeeds(READ, WORK),
    "batches": PageNeeds(READ, LEAD),
    "sessions": PageNeeds(READ, LEAD),
    "review": PageNeeds(READ, WORK),
    "lists": PageNeeds(READ, LEAD),
    # What is done there the trail takes down with the names that it is about.
    "accounts": PageNeeds(Need("admin", trailed=False), Need("admin", trailed=False)),
}
"""By the page's address."""


def _handlers(need: Need, owner: str, names: str) -> dict[str, Need]:
    return {f"{owner}.{name}": need for name in names.split()}


HANDLERS: Mapping[str, Need] = {
    **_handlers(ADMIN, "AccountHandlers", "check export_csv export_json"),
    **_handlers(READ, "AuditHandlers", "open"),
    **_handlers(LOOK, "AuditHandlers", "contribute overhead pause"),
    **_handlers(READ, "BranchHandlers", "tree beside"),
    **_handlers(LOOK, "BranchHandlers", "ponder"),
    **_handlers(READ, "RereadingHandlers", "reread halt"),
    **_handlers(READ, "VerdictHandlers", "read"),
    **_handlers(EXPORT, "DownloadHandlers", "export"),
    **_handlers(READ, "SettingsHandlers", "adopt describe_calibration describe_drift describe_method describe_model"),
    **_handlers(READ, "SettingsHandlers", "describe_tuned detect menu preview use_tuned"),
    **_handlers(READ, "JobWatch", "opened poll"),
    **_handlers(READ, "CalibrationFormHandlers", "applies menu share_out"),
    **_handlers(READ, "CalibrationPrompts", "check estimate preview preview_again"),
    **_handlers(READ, "PromptHandlers", "parse remap sample"),
    **_handlers(READ, "ResultHandlers", "choose compare histogram menu others read reweight show"),
    **_handlers(EXPORT, "ResultHandlers", "export"),
    **_handlers(READ, "BatchFormHandlers", "check estimate opened preview"),
    **_handlers(READ, "BatchSettings", "describe_calibration"),
    **_handlers(READ, "BatchHandlers", "find listed outcome totals"),
    **_handlers(EXPORT, "BatchHandlers", "export formal"),
    **_handlers(READ, "CompareHandlers", "detect find menu open pick"),
    **_handlers(LOOK, "CompareHandlers", "pause"),
    **_handlers(EXPORT, "CompareHandlers", "csv"),
    **_handlers(READ, "SetHandlers", "listed parse remap take view"),
    **_handlers(EXPORT, "SetHandlers", "table"),
    **_handlers(READ, "CoefficientHandlers", "fitted offered"),
    **_handlers(READ, "EvaluateHandlers", "estimate figures items opened show suites"),
    **_handlers(EXPORT, "EvaluateHandlers", "export"),
    **_handlers(READ, "ExperimentHandlers", "chosen opened table"),
    **_handlers(EXPORT, "ExperimentHandlers", "export"),
    **_handlers(READ, "ListHandlers", "opened parse show"),
    **_handlers(EXPORT, "ListHandlers", "export"),
    **_handlers(READ, "PathsHandlers", "describe_calibration node open result show"),
    **_handlers(EXPORT, "PathsHandlers", "table"),
    **_handlers(READ, "ReviewHandlers", "agree differ find read"),
    **_handlers(LEAD, "ReviewHandlers", "assign decide settle"),
    **_handlers(EXPORT, "ReviewHandlers", "file"),
    **_handlers(READ, "SessionHandlers", "find pick"),
    **_handlers(EXPORT, "SessionHandlers", "gather"),
    **_handlers(READ, "SwapHandlers", "at look open"),
    **_handlers(LOOK, "SwapHandlers", "cancel"),
    **_handlers(EXPORT, "SwapHandlers", "table"),
    **_handlers(READ, "TuneHandlers", "forecast read result sample show"),
    **_handlers(EXPORT, "TuneHandlers", "csv"),
}
"""By the handler's class and name: what less, or more, than to work on its page is needed for."""

_LAMBDA = "<lambda>"


def event_need(page: str, api_name: str, public: bool, handler: str) -> Need:
    """What an event takes."""
    if public:
        return OPERATIONS.get(api_name, ADMIN)
    if not handler:
        return READ
    if handler.endswith(_LAMBDA):
        # Written where the page is built: they show, empty or hide parts of a form.
        return READ
    needs = PAGES.get(page)
    return HANDLERS.get(handler, ADMIN if needs is None else needs.working)


def _compiled() -> list[tuple[re.Pattern[str], Rule]]:
    return [(compile_path(pattern)[0], rule) for pattern, rule in ROUTES]


class RouteTable:
    """Finds the row of a request's path; the first that fits counts, and what has none is for nobody."""

    def __init__(self) -> None:
        self._rows = _compiled()

    def rule(self, path: str) -> Rule:
        """What a path takes; a slash at the end changes nothing."""
        stripped = path.rstrip("/")
        page = PAGES.get(stripped.removeprefix("/"))
        if page is not None:
            return page.opening
        return next((rule for pattern, rule in self._rows if pattern.match(stripped)), NOBODY)
