"""The verdict panel: what the reviewer says of a token, a span, a branch or a session, and what others said."""

from __future__ import annotations

import gradio as gr

from app.review.log import VERDICTS
from app.shared.markup import icon

EVENTS = "['read', 'give']"
KEYS = {"fair": "C", "unfair": "U", "unclear": "X"}
SCOPES = (("steps", "this token"), ("branch", "this branch"), ("session", "whole session"))


def verdict_panel() -> gr.HTML:
    """Place the panel; it triggers what concerns verdicts and receives its messages."""
    return gr.HTML(
        html_template=f"""<section class="judge" aria-labelledby="h-judge" hidden>
        <div class="judge-head"><h2 id="h-judge">Verdict</h2>
          <div class="judge-buttons" role="radiogroup" aria-labelledby="h-judge h-judged">{_buttons()}</div></div>
        <div class="judge-about"><label class="vh" for="judge-on">What is judged</label>
          <select id="judge-on" class="select small">{_scopes()}</select>
          <span class="sub tnum on-what" id="h-judged"></span>
          <label class="vh" for="judge-tag">Tag</label>
          <input id="judge-tag" class="input small" maxlength="100" placeholder="tag" autocomplete="off"></div>
        <label class="vh" for="judge-note">Note</label>
        <textarea id="judge-note" class="input" rows="2" placeholder="Why? The note stands in the log and in reports."
          aria-describedby="h-judged"></textarea>
        <div class="judge-foot"><span class="hint tnum signed"></span>
          <button type="button" class="btn small quiet" data-do="rename">Change name</button>
          <button type="button" class="btn small quiet end" data-do="withdraw" hidden>Withdraw</button></div>
        <div class="judge-said"><span class="sub said" role="status"></span>
          <button type="button" class="btn small" data-do="undo" hidden>Undo</button>
          <button type="button" class="btn small end" data-do="save" hidden>Save note</button></div>
        <p class="judge-blind blindly" role="status" hidden>{icon("half")}<span></span>
          <a href="./review">Finish it</a></p>
        <div class="status" hidden><p class="sub how"></p><ul class="judge-opinions"></ul>
          <p class="hint next" hidden>A third person can decide this under Review.</p></div>
        <div class="related" hidden></div>
        <div class="judge-links"><a class="btn small quiet" data-do="review" href="./review">Review this session</a>
          <button type="button" class="btn small quiet" data-do="refresh">Refresh verdicts</button></div>
        </section>""",
        js_on_load=f"coft.verdicts.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="verdicts",
        elem_classes=["coft"],
    )


def _buttons() -> str:
    return "".join(
        f'<button type="button" class="btn" role="radio" aria-checked="false" data-do="judge" data-verdict="{verdict}">'
        f"{icon(verdict)}{verdict.capitalize()} <kbd>{KEYS[verdict]}</kbd></button>"
        for verdict in VERDICTS
    )


def _scopes() -> str:
    return "".join(f'<option value="{value}">{text}</option>' for value, text in SCOPES)
