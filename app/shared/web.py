"""What every page begins with, and the examples that come with the application."""

from __future__ import annotations

import json
from pathlib import Path

import gradio as gr
from gradio.components import Navbar

from app.shared.markup import icon, sprite

ASSETS = Path(__file__).resolve().parents[2] / "assets"
EXAMPLES = ASSETS / "prompts" / "examples.json"
PHANTOM = ASSETS / "prompts" / "phantom_examples.json"
TEMPLATES = ASSETS / "templates"
FAVICON = ASSETS / "favicon.png"


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
