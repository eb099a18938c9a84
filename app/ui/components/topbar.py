"""The top bar: name, pages, theme and help. Gradio's own navigation is hidden in its favour."""

from __future__ import annotations

import gradio as gr
from gradio.components import Navbar

from app.ui.components.markup import icon, sprite

PAGES = (
    ("Audit", "./", "audit"),
    ("Calibrate", "./calibrate", "calibrate"),
    ("Compare", "./compare", "compare"),
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
          <div class="right"><span class="hint" id="saved" role="status"></span>
            <button type="button" class="btn quiet" data-do="theme" aria-label="Switch between light and dark"
              title="Light or dark">{icon("half")}</button>
            <button type="button" class="btn quiet" data-do="help" aria-label="Keyboard help" title="Keyboard help"
              ><kbd>?</kbd></button></div>
        </header>
        <dialog id="help" class="sheet" aria-labelledby="help-title"><form method="dialog">
          <h2 id="help-title">Keys</h2>
          <dl class="keys">
            <div><dt><kbd>←</kbd></dt><dd>back: look at the token before</dd></div>
            <div><dt><kbd>→</kbd></dt><dd>step: the next token, written if it does not exist yet</dd></div>
            <div><dt><kbd>space</kbd></dt><dd>start, run or pause</dd></div>
            <div><dt><kbd>1</kbd> to <kbd>9</kbd></dt><dd>force this candidate at the selected token</dd></div>
            <div><dt><kbd>Home</kbd> <kbd>End</kbd></dt><dd>first and last token</dd></div>
            <div><dt><kbd>Alt</kbd> <kbd>M</kbd></dt><dd>in the prompt: mark the selected text as a span</dd></div>
            <div><dt><kbd>Alt</kbd> <kbd>A</kbd></dt><dd>in the prompt: accept the suggestion at the cursor</dd></div>
            <div><dt><kbd>[</kbd></dt><dd>hide or show the settings</dd></div>
            <div><dt><kbd>?</kbd></dt><dd>this sheet</dd></div>
          </dl>
          <p class="hint">Keys do nothing while you type in a field.</p>
          <button class="btn primary">Close</button></form></dialog>
        <dialog id="confirm" class="sheet" aria-labelledby="confirm-title"><form method="dialog">
          <h2 id="confirm-title"></h2><p class="sub"></p>
          <div class="row"><button class="btn" value="no">Keep it</button>
            <button class="btn danger" value="yes"></button></div></form></dialog>""",
        js_on_load="coft.frame.mount(element)",
        apply_default_css=False,
        elem_classes=["coft", "coft-top"],
    )
