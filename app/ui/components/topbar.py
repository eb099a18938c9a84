"""The top bar: name, pages, theme and help. Gradio's own navigation is hidden in its favour."""

from __future__ import annotations

import gradio as gr
from gradio.components import Navbar

from app.ui.components.markup import icon, sprite

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
