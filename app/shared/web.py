"""What every page begins with, and the examples that come with the application."""

from __future__ import annotations

import json
from collections.abc import Sequence

import gradio as gr
from gradio.components import Navbar

from app.prompts.words import family_choices
from app.shared.components import place
from app.shared.glossary import GLOSSARY
from app.shared.wiring import GROUPS, Services
from coft_core.assets import assets_path

ASSETS = assets_path()
EXAMPLES = ASSETS / "prompts" / "examples.json"
PHANTOM = ASSETS / "prompts" / "phantom_examples.json"
TEMPLATES = ASSETS / "templates"
FAVICON = ASSETS / "favicon.png"


def examples() -> list[tuple[str, str, str]]:
    """Title and prompt of each example that comes with the application, and a seed that shows much; empty for any."""
    return [
        (item["title"], item["prompt"], str(item.get("seed", ""))) for item in json.loads(EXAMPLES.read_text("utf-8"))
    ]


def phantom_examples() -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Scenarios of the embedded phantom by setting: title, prompt and what is planted there."""
    groups = json.loads(PHANTOM.read_text("utf-8"))
    return [
        (group["title"], [(item["title"], item["prompt"], item["planted"]) for item in group["examples"]])
        for group in groups
    ]


def topbar(services: Services, current: str) -> None:
    """Place the bar; ``current`` is the shown page's address."""
    Navbar(visible=False)
    pages = [page for page in services.pages if not page.for_admins]
    place(
        "shared/topbar.html",
        "coft.frame.mount(element)",
        classes=("coft", "coft-top"),
        groups={group: [page for page in pages if page.group == group] for group in GROUPS},
        current=next((page for page in services.pages if page.path == current), None),
        glossary=GLOSSARY,
        accounts=services.settings.accounts == "on",
    )


def span_editor(telling: Sequence[tuple[str, str]] = ()) -> gr.HTML:
    """Place the prompt editor, which triggers ``detect`` and ``preview``; ``telling`` are examples shown under it."""
    families = family_choices()
    return place(
        "shared/span_editor.html",
        "coft.editor.mount(element, trigger, props, watch, ['detect', 'preview'])",
        "editor",
        families=families,
        names=json.dumps({key: name for name, key in families}),
        examples=examples(),
        scenarios=phantom_examples(),
        telling=telling,
    )
