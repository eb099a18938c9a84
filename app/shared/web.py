"""The pages' own style and scripts, read once when the application is built."""

from __future__ import annotations

import json
from pathlib import Path

import gradio as gr
from gradio.components import Navbar

from app.shared.audits import SENSITIVE
from app.shared.charts import CONFIG, PALETTES, frames, template
from app.shared.markup import icon, sprite
from app.shared.policy_menu import policies_json

ASSETS = Path(__file__).resolve().parents[2] / "assets"
STYLES = (
    "tokens",
    "base",
    "controls",
    "fields",
    "tables",
    "marks",
    "figures",
    "sliders",
    "frame",
    "prompt",
    "transcript",
    "inspector",
    "chain",
    "calibrate",
    "calibration_result",
    "sessions",
    "menus",
    "verdicts",
    "rereading",
    "branches",
    "pictures",
    "stepping",
    "compare",
    "compare_lanes",
    "compare_sets",
    "methods",
    "swap",
    "swap_result",
    "batches",
    "batch_groups",
    "review",
    "agreement",
    "gradio_theme",
    "gradio_layout",
    "gradio_fields",
    "gradio_folds",
    "gradio_messages",
    "widths",
)
SCRIPTS = (
    "core",
    "pieces",
    "theme",
    "frame",
    "connection",
    "keys",
    "policy_parameters",
    "policy_menu",
    "pictures",
    "charts",
    "step_pictures",
    "marking",
    "editor_view",
    "editor",
    "tokens",
    "whole",
    "spans",
    "session",
    "controls",
    "unsaved",
    "inspector",
    "tree",
    "beside",
    "branches",
    "rereading_marks",
    "rereading",
    "reviewer",
    "verdict_marks",
    "verdicts",
    "stepping",
    "lists",
    "menus",
    "asked",
    "library",
    "calibrate",
    "compare",
    "compare_pictures",
    "compare_columns",
    "compare_sets",
    "compare_setup",
    "swap",
    "swap_result",
    "batches",
    "batch_groups",
    "review",
    "agreement",
)
EXAMPLES = ASSETS / "prompts" / "examples.json"
PHANTOM = ASSETS / "prompts" / "phantom_examples.json"
TEMPLATES = ASSETS / "templates"
FAVICON = ASSETS / "favicon.png"


def styles() -> str:
    """All style sheets in their order."""
    return "\n".join((ASSETS / "css" / f"{name}.css").read_text("utf-8") for name in STYLES)


def head() -> str:
    """What goes into the page's head: style, the theme before anything is drawn, chart colours, scripts.

    The style goes here and not through Gradio's ``css``, which rewrites selectors and so loses rules in media queries.
    """
    shared = {
        "templates": {mode: template(mode) for mode in PALETTES},
        "palettes": PALETTES,
        "config": CONFIG,
        "frames": frames(),
        "sensitive": SENSITIVE,
        "policies": policies_json(),
    }
    scripts = "\n".join((ASSETS / "js" / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    return (
        '<meta name="color-scheme" content="light dark">'
        f"<style>{styles()}</style>"
        f"<script>window.coftShared = {json.dumps(shared)};</script>"
        f"<script>{scripts}</script>"
    )


def examples() -> list[tuple[str, str]]:
    """Title and prompt of each example that comes with the application."""
    if not EXAMPLES.is_file():
        return []
    return [(item["title"], item["prompt"]) for item in json.loads(EXAMPLES.read_text("utf-8"))]


def phantom_examples() -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Scenarios of the embedded phantom by setting: title, prompt and what is planted there."""
    if not PHANTOM.is_file():
        return []
    groups = json.loads(PHANTOM.read_text("utf-8"))
    return [
        (group["title"], [(item["title"], item["prompt"], item["planted"]) for item in group["examples"]])
        for group in groups
    ]


PAGES = (
    ("Audit", "./", "audit"),
    ("Calibrate", "./calibrate", "calibrate"),
    ("Compare", "./compare", "compare"),
    ("Tune", "./tune", "tune"),
    ("Swap", "./swap", "swap"),
    ("Batches", "./batches", "batches"),
    ("Sessions", "./sessions", "sessions"),
    ("Review", "./review", "review"),
    ("Word lists", "./lists", "lists"),
)


def topbar(current: str) -> None:
    """Place the bar; ``current`` is the shown page's key."""
    Navbar(visible=False)
    links = "".join(
        f'<a href="{path}"{" aria-current=page" if key == current else ""}>{name}</a>' for name, path, key in PAGES
    )
    gr.HTML(
        html_template=f"""{sprite()}
        <a class="skip" href="#main">Skip to the page</a>
        <header class="topbar">
          <a class="brand" href="./">{icon("logo", "logo")}COFT Audit</a>
          <nav class="nav" aria-label="Pages">{links}</nav>
          <div class="right"><span class="judged-whole" id="session-verdict" hidden></span>
            <span class="hint" id="saved" role="status"></span>
            <button type="button" class="btn quiet" data-do="theme" aria-label="Switch between light and dark"
              title="Light or dark">{icon("half")}</button>
            <button type="button" class="btn quiet" data-do="help" aria-label="Keyboard help" title="Keyboard help"
              ><kbd>?</kbd></button></div>
        </header>
        <dialog id="help" class="sheet keysheet" aria-labelledby="help-title"><form method="dialog">
          <h2 id="help-title">Keys</h2>
          <div class="topics"></div>
          <p class="hint">While you type in a field, only the keys of that field count.</p>
          <button class="btn primary">Close</button></form></dialog>
        <dialog id="confirm" class="sheet" aria-labelledby="confirm-title"><form method="dialog">
          <h2 id="confirm-title"></h2><p class="sub"></p>
          <div class="row"><button class="btn" value="no">Keep it</button>
            <button class="btn danger" value="yes"></button></div></form></dialog>""",
        js_on_load="coft.frame.mount(element)",
        apply_default_css=False,
        elem_classes=["coft", "coft-top"],
    )
