"""The tree of branches: a folded panel in the transcript, its menu, and the link to its handlers."""

from __future__ import annotations

import gradio as gr

from app.ui.components.markup import icon

EVENTS = "['tree', 'rename', 'ponder', 'prune', 'beside']"

ACTIONS = (
    ("open", "Open", "Shows this branch in the transcript.", ""),
    ("rename", "Rename", "", "F2"),
    ("link", "Copy link", "Leads to this branch, at its fork or at the selected token.", ""),
    ("beside", "Put beside the shown one", "Both texts from where they part, with their sensitivity.", ""),
    ("prune", "Prune", "Deletes it with all branches that depart from it.", "Del"),
)
"""What can be done with a branch: action, title, why, and its key."""


def branch_panel() -> str:
    """The panel, as markup for the transcript; the browser draws the tree into it."""
    return f"""<details class="branching" hidden><summary>{icon("chev", "chev")}<span class="title">Branches</span>
          <span class="hint shape">each line is a chain along its steps; the shown one is thick</span></summary>
        <p class="hint alone" hidden>There is one chain so far. Select a token and force another word there: the text
          goes on from it in a branch of its own, and both stay here.</p>
        <div class="tree" hidden>
          <div class="lanes"><ul role="tree" aria-label="Branches" aria-describedby="tree-keys"></ul>
            <div class="graph" aria-hidden="true"></div><div class="more"></div></div>
          <p class="hint foot"><span id="tree-keys"><kbd>↑</kbd> <kbd>↓</kbd> move, <kbd>←</kbd> <kbd>→</kbd> fold and
            unfold, <kbd>Enter</kbd> opens, <kbd>F2</kbd> renames, <kbd>Del</kbd> prunes</span>
            <a class="siblings" href="./compare" hidden>Compare with siblings</a></p></div>
        <p class="hint told" role="status"></p>
        <section class="beside" aria-labelledby="h-beside" hidden></section>
        {_menu()}</details>"""


def branch_link() -> gr.HTML:
    """Place the component that carries the panel's events and their answers."""
    return gr.HTML(
        html_template="<div></div>",
        js_on_load=f"coft.branches.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="branch-link",
        elem_classes=["offscreen"],
    )


def _menu() -> str:
    *items, last = (
        f'<button type="button" role="menuitem" tabindex="-1" data-action="{action}"'
        f'{" class=danger" if action == "prune" else ""}><span class="title">{title}'
        f"{f' <kbd>{key}</kbd>' if key else ''}</span>{f'<span class=hint>{why}</span>' if why else ''}</button>"
        for action, title, why, key in ACTIONS
    )
    compare = (
        '<a role="menuitem" tabindex="-1" data-action="compare" href="./compare"><span class="title">Compare with '
        'siblings</span><span class="hint">Opens the comparison of these chains.</span></a>'
    )
    body = "".join([*items, compare, last])
    return f'<div class="menu" id="menu-branch" popover role="menu" aria-label="Branch">{body}</div>'
