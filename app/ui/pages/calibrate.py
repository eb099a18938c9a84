"""The calibrate page: a prompt set, a run, and what it can certify."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from app.services.ports import Services
from app.services.views import CalibrationRequest, CalibrationView
from app.ui import assets
from app.ui.components.settings_rail import masking_controls, masking_from
from app.ui.components.topbar import topbar
from app.ui.errors import shown
from app.ui.figures import support_histogram
from app.ui.presenters_calibrate import accept_label, job_status, prompt_set, runs_list
from app.ui.presenters_format import threshold
from app.ui.presenters_result import OTHER_ALPHAS, alphas, bin_choices, result_foot, result_head
from app.ui.presenters_session import list_choices

ESTIMATORS = [
    ("hierarchical: all tokens, whole contexts", "hierarchical"),
    ("one per context: one token each", "one_per_context"),
    ("pooled: as in the paper", "pooled"),
]
POLL_SECONDS = 0.7
ACTIVE = ("queued", "running")
EMPTY = (
    '<section><div class="bar"><h2>Result</h2></div><p class="sub">Choose a run, or upload a prompt set and run one. '
    "What it can certify then stands here.</p></section>"
)


EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 8}
"""What all events of the page have in common: errors and changes of state pass only through the queue."""


class CalibrateHandlers:
    """What the page asks of the services."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._calibrations = services.calibrations
        self._jobs = services.jobs
        self._user_lists = services.user_lists
        self.families = services.audits.masked_families

    @shown
    def parse(self, path: str | None) -> list[Any]:
        """Read an uploaded prompt set."""
        if path is None:
            return ["", gr.Checkbox(visible=False, value=False), gr.Button(interactive=False)]
        parsed = self._calibrations.parse(Path(path), Path(path).name)
        accept = gr.Checkbox(visible=bool(parsed.errors), value=False, label=accept_label(parsed))
        return [prompt_set(parsed), accept, gr.Button(interactive=bool(parsed.rows))]

    @shown
    def submit(self, path: str, accept: bool, name: str, *values: Any) -> list[Any]:
        """Begin a calibration job."""
        model, estimator, alpha, lam, temperature, top_p, top_k, sentinel, share, seed, user_list, families = values
        request = CalibrationRequest(
            name=name.strip() or Path(path).stem, model=model, lam=lam, alpha=alpha, estimator=estimator,
            temperature=temperature, top_p=top_p, top_k=int(top_k), sentinel=sentinel.strip() or None,
            seed=int(seed or 0), verification_share=share, accept_errors=accept,
            **masking_from(user_list, families),
        )  # fmt: skip
        number = self._calibrations.submit(self._calibrations.parse(Path(path), Path(path).name), request)
        return [number, job_status(self._jobs.get(number)), gr.Timer(active=True), gr.Button(visible=True)]

    @shown
    def poll(self, number: int | None, shown_id: int | None) -> list[Any]:
        """Look at the running job; when it ends, show what it made."""
        if number is None:
            return [shown_id, "", gr.Timer(active=False), gr.Button(visible=False)]
        job = self._jobs.get(number)
        running = job.status in ACTIVE
        made = int(str(job.result["calibration_id"])) if job.status == "done" and job.result else shown_id
        return [made, job_status(job), gr.Timer(active=running), gr.Button(visible=running)]

    @shown
    def cancel(self, number: int | None) -> None:
        """Ask the job to stop."""
        if number is not None:
            self._jobs.cancel(number)

    @shown
    def opened(self, request: gr.Request) -> list[Any]:
        """The run that the address names, else the newest; and a job that is still at work."""
        found = self._calibrations.list()
        asked = str(request.query_params.get("run", ""))
        wanted = int(asked) if asked.isdigit() else None
        shown_id = wanted if any(item.id == wanted for item in found) else (found[0].id if found else None)
        working = next((job for job in self._jobs.list("calibration") if job.status in ACTIVE), None)
        number = working.id if working else None
        busy = working is not None
        return [shown_id, number, gr.Timer(active=busy), gr.Button(visible=busy), runs_list(found, shown_id)]

    @shown
    def menu(self) -> Any:
        """The word lists to choose from."""
        return gr.Dropdown(list_choices(self._user_lists.list()))

    @shown
    def show(self, shown_id: int | None) -> list[Any]:
        """The result of a run, read from its stored values."""
        listed = runs_list(self._calibrations.list(), shown_id)
        if shown_id is None:
            return [listed, EMPTY, gr.Dropdown(visible=False), gr.Plot(visible=False), "", ""]
        view = self._calibrations.view(shown_id)
        levels = sorted({*OTHER_ALPHAS, view.alpha}, reverse=True)
        readings = [self._calibrations.view(shown_id, level) for level in levels]
        choices = bin_choices(view)
        first = choices[0][1] if choices else None
        return [
            listed, result_head(view), gr.Dropdown(choices, value=first, visible=bool(choices)),
            gr.Plot(_histogram(view, first), visible=bool(choices)), alphas(readings, view.alpha), result_foot(view),
        ]  # fmt: skip

    @shown
    def histogram(self, shown_id: int | None, label: str) -> Any:
        """Joint support of one bin's true tokens."""
        return _histogram(self._calibrations.view(shown_id), label) if shown_id else None

    @shown
    def choose(self, event: gr.EventData) -> int:
        """Show another run."""
        return int(event.id)

    @shown
    def delete(self, event: gr.EventData, shown_id: int | None) -> list[Any]:
        """Delete a run; when it was shown, show the newest of the others."""
        self._calibrations.delete(int(event.id))
        found = self._calibrations.list()
        kept = shown_id if shown_id != event.id else (found[0].id if found else None)
        return [kept, runs_list(found, kept)]


def calibrate_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    handlers = CalibrateHandlers(services)
    topbar("calibrate")
    with gr.Column(elem_classes=["page"], elem_id="main"):
        _markup(
            '<div class="pagehead"><h1>Calibrate</h1><p class="sub">Learn from your own prompts how likely a word must '
            "be, in both views, before it is certified.</p></div>"
        )
        with gr.Row(elem_classes=["calib"]):
            with gr.Column(elem_classes=["stack"], min_width=0):
                shown_id, runs = _form(app, handlers)
            with gr.Column(elem_classes=["stack"], min_width=0):
                _result(handlers, shown_id, runs)


def _form(app: gr.Blocks, handlers: CalibrateHandlers) -> tuple[gr.State, gr.HTML]:
    job, shown_id = gr.State(None), gr.State(None)
    timer = gr.Timer(POLL_SECONDS, active=False)
    with gr.Column(elem_classes=["group"]):
        _markup('<div class="bar"><h2>1. Prompt set</h2><span class="hint">CSV or JSONL, UTF-8</span></div>')
        file = gr.File(
            label="Prompt set", show_label=False, file_types=[".csv", ".jsonl"], height=92, elem_id="prompt-set"
        )
        _markup(
            '<p class="hint">Columns: <span class="mono">prompt</span> and <span class="mono">reference</span>, its '
            "true "
            'continuation; optional <span class="mono">spans</span> (JSON list of [start, end, family]) and '
            '<span class="mono">group</span> for prompts that belong together. Start from a template:</p>'
        )
        with gr.Row(elem_classes=["templates"]):
            for kind in ("csv", "jsonl"):
                gr.DownloadButton(kind.upper(), str(assets.TEMPLATES / f"prompt_set.{kind}"), size="sm")
        parsed = _markup("", "parsed")
        accept = gr.Checkbox(False, label="Go on with the good rows", visible=False, elem_id="accept")
    with gr.Column(elem_classes=["group"]):
        _markup('<div class="bar"><h2>2. Run</h2></div>')
        name = gr.Textbox(label="Name", placeholder="the file's name", max_lines=1)
        settings = _settings(handlers.families)
        with gr.Row(elem_classes=["go"]):
            run = gr.Button("Run", variant="primary", interactive=False, elem_id="run")
            cancel = gr.Button("Cancel", visible=False, elem_id="cancel")
        status = _markup("", "job")
    with gr.Column(elem_classes=["group"]):
        _markup('<div class="bar"><h2>Past runs</h2></div>')
        runs = gr.HTML(
            js_on_load="coft.list.mount(element, trigger); /* 'show' 'delete' */",
            apply_default_css=False,
            elem_id="runs",
            elem_classes=["coft"],
        )
    file.change(handlers.parse, file, [parsed, accept, run], **EVENT)
    run.click(
        handlers.submit, [file, accept, name, *settings], [job, status, timer, cancel],
        **EVENT,
    )  # fmt: skip
    timer.tick(handlers.poll, [job, shown_id], [shown_id, status, timer, cancel], **EVENT)
    cancel.click(handlers.cancel, job, None, **EVENT)
    app.load(handlers.opened, None, [shown_id, job, timer, cancel, runs], **EVENT)
    app.load(handlers.menu, None, settings[-2], **EVENT)
    return shown_id, runs


def _settings(families: tuple[str, ...]) -> list[Any]:
    usual = CalibrationRequest(name="")
    model = gr.Dropdown([("demo, embedded", "demo")], value=usual.model, label="Model", allow_custom_value=True)
    estimator = gr.Dropdown(ESTIMATORS, value=usual.estimator, label="Estimator")
    with gr.Row(elem_classes=["twin"]):
        alpha = gr.Slider(0.001, 0.3, usual.alpha, step=0.001, label="Alpha", buttons=[], min_width=0)
        lam = gr.Slider(0, 1, usual.lam, step=0.01, label="Lambda", buttons=[], min_width=0)
    _markup(
        '<p class="hint">Alpha: true tokens that may be missed. Lambda: weight of the masked view.</p>', kind="note"
    )
    with gr.Accordion("Sampling, masking and split", open=False, elem_classes=["fold"]):
        temperature = gr.Slider(0.1, 2, usual.temperature, step=0.05, label="Temperature", buttons=[])
        top_p = gr.Slider(0.05, 1, usual.top_p, step=0.01, label="Top-p (1 is off)", buttons=[])
        top_k = gr.Slider(0, 200, usual.top_k, step=1, label="Top-k (0 is off)", buttons=[])
        user_list, masked = masking_controls(families)
        sentinel = gr.Textbox("", label="Sentinel", placeholder="the model's own", max_lines=1)
        share = gr.Slider(
            0.1, 0.9, usual.verification_share, step=0.05, label="Share kept apart to check the result", buttons=[]
        )
        seed = gr.Number(usual.seed, label="Seed of the split", precision=0)
    return [model, estimator, alpha, lam, temperature, top_p, top_k, sentinel, share, seed, user_list, masked]


def _result(handlers: CalibrateHandlers, shown_id: gr.State, runs: gr.HTML) -> None:
    head = _markup(EMPTY, "result")
    with gr.Row(elem_classes=["pair"]):
        with gr.Column(min_width=0, elem_classes=["figure"]):
            bins = gr.Dropdown([], label="Joint support of true tokens", elem_id="bins", visible=False)
            plot = gr.Plot(
                visible=False, show_label=False, container=False, elem_classes=["chart"], elem_id="support-plot"
            )
        with gr.Column(min_width=0):
            other = _markup("", "alphas")
    foot = _markup("", "result-foot")
    shown_id.change(handlers.show, shown_id, [runs, head, bins, plot, other, foot], **EVENT)
    bins.input(handlers.histogram, [shown_id, bins], plot, **EVENT)
    runs.show(handlers.choose, None, shown_id, **EVENT)
    runs.delete(handlers.delete, shown_id, [shown_id, runs], **EVENT)


def _markup(value: str, name: str | None = None, kind: str = "") -> gr.HTML:
    return gr.HTML(value, apply_default_css=False, elem_id=name, elem_classes=["coft", *([kind] if kind else [])])


def _histogram(view: CalibrationView, label: str | None) -> Any:
    item = next((item for item in view.bins if item.label == label), None)
    if item is None:
        return None
    return support_histogram(view.log_values.get(item.label, ()), item.tau, threshold(item.tau))
