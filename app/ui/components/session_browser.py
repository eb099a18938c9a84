"""The library of sessions: filters, rows, menus and the questions that it asks. The browser asks for pages of it."""

from __future__ import annotations

import gradio as gr

from app.ui.components.markup import icon
from app.ui.presenters_library import EXPORTS
from app.ui.presenters_library_form import filters, page_sizes

EVENTS = "['find', 'pick', 'act', 'export', 'gather']"

BULK = (
    ("tag", "Add a tag", ""),
    ("untag", "Remove a tag", ""),
    ("compare", "Compare", ""),
    ("archive", "Archive", ""),
    ("unarchive", "Take out of the archive", ""),
    ("gather", "Export reports", "down"),
)
"""What can be done with several sessions at once, deleting apart."""


def session_browser() -> gr.HTML:
    """Place the library; it triggers what concerns sessions and receives its messages."""
    return gr.HTML(
        html_template=f"""<section aria-labelledby="h-sessions">
        <form class="filters" role="search" aria-label="Filters">{filters()}</form>
        <div class="bar foundbar"><h2 id="h-sessions" class="vh">Results</h2>
          <span class="sub tnum where" role="status"></span><span class="sub told" role="status"></span>
          <div class="end pager">{page_sizes()}
            <button type="button" class="btn small" data-do="page" data-by="-1" disabled>{icon("back")}Previous</button>
            <span class="hint tnum leaf"></span>
            <button type="button" class="btn small" data-do="page" data-by="1" disabled>Next{icon("step")}</button>
          </div></div>
        <div class="bulk" role="toolbar" aria-label="Chosen sessions" hidden>{_bulk()}</div>
        <div id="sessions" class="results" tabindex="-1" aria-busy="true"><p class="sub">Loading …</p></div>
        {_downloads()}{_more()}{_question()}</section>""",
        js_on_load=f"coft.library.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="library",
        elem_classes=["coft"],
    )


def _bulk() -> str:
    buttons = "".join(
        f'<button type="button" class="btn small" data-do="bulk" data-action="{action}">'
        f"{icon(mark) if mark else ''}{text}</button>"
        for action, text, mark in BULK
    )
    return (
        '<strong class="tnum chosen" role="status"></strong>'
        '<button type="button" class="btn small quiet" data-do="pick-found" hidden></button>'
        f'<span class="acts">{buttons}<button type="button" class="btn small danger" data-do="bulk" '
        'data-action="delete">Delete</button></span>'
        '<button type="button" class="btn small quiet" data-do="pick-none">Choose none</button>'
    )


def _downloads() -> str:
    items = "".join(
        f'<button type="button" role="menuitem" tabindex="-1" data-do="export" data-kind="{kind}">'
        f'<span class="title">{title}</span><span class="hint">{why}</span></button>'
        for kind, title, why in EXPORTS
    )
    return f'<div class="menu" id="menu-download" popover role="menu" aria-label="Download">{items}</div>'


def _more() -> str:
    def item(action: str, text: str, classes: str = "") -> str:
        return (
            f'<button type="button" role="menuitem" tabindex="-1" class="{classes}" data-do="one" '
            f'data-action="{action}"><span class="title">{text}</span></button>'
        )

    copy = (
        '<a role="menuitem" tabindex="-1" data-do="duplicate" href="./"><span class="title">Duplicate with other '
        'settings</span><span class="hint">Opens the audit page with this prompt, its spans and settings.</span></a>'
    )
    return (
        '<div class="menu" id="menu-more" popover role="menu" aria-label="More actions">'
        f"{item('rename', 'Rename')}{item('tag', 'Add a tag')}{copy}{item('archive', 'Archive')}"
        f"{item('unarchive', 'Take out of the archive')}{item('delete', 'Delete', 'danger')}</div>"
    )


def _question() -> str:
    return """<dialog id="ask" class="sheet coft" aria-labelledby="ask-title"><form method="dialog">
          <h2 id="ask-title"></h2>
          <div class="field"><label for="ask-text"></label>
            <input class="input" id="ask-text" autocomplete="off" required></div>
          <datalist id="known-tags"></datalist>
          <div class="row"><button type="button" class="btn" data-do="cancel">Cancel</button>
            <button class="btn primary" value="yes"></button></div></form></dialog>"""
