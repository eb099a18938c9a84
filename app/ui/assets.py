"""The pages' own style and scripts, read once when the application is built."""

from __future__ import annotations

import json
from pathlib import Path

from app.services.views.running import SENSITIVE
from app.ui.figures import CONFIG, PALETTES, template
from app.ui.figures_steps import frames
from app.ui.presenters_policies import policies_json

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
