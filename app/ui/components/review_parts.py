"""The parts of the review page: sessions to choose from, a session's verdicts, and reviewers' agreement."""

from __future__ import annotations

import gradio as gr

from app.services.views.verdicts import VERDICTS
from app.ui.components.markup import icon


def session_picker() -> gr.HTML:
    """Place the reviewer's name and the search for a session."""
    return gr.HTML(
        html_template="""<div class="pagehead"><h1>Review</h1>
          <p class="sub">Second opinions, decisions, and how far reviewers agree.</p>
          <p class="reviewer-line"><span class="sub named"></span>
            <button type="button" class="btn small" data-do="rename">Change name</button></p></div>
        <section class="picker" aria-labelledby="h-pick" hidden>
          <div class="bar"><h2 id="h-pick">Choose a session</h2></div>
          <form class="field" role="search"><label class="vh" for="pick-text">Search sessions</label>
            <input id="pick-text" class="input" type="search" autocomplete="off"
              placeholder="Search names, prompts, tags and notes"></form>
          <div class="choices" aria-live="polite"><p class="sub">Loading …</p></div></section>""",
        js_on_load="coft.review.picker(element, trigger, props, watch, ['find'])",
        apply_default_css=False,
        elem_id="review-pick",
        elem_classes=["coft"],
    )


def review_sheet() -> gr.HTML:
    """Place a session's reviews, targets and log."""
    return gr.HTML(
        html_template=f"""<div class="one-session" hidden><section class="head" aria-label="Session"></section>
        <p class="sub told" role="status"></p>
        <section aria-labelledby="h-own"><h3 id="h-own">Your review</h3><div class="review"></div></section>
        <section aria-labelledby="h-targets"><div class="bar"><h3 id="h-targets">What was judged</h3>
          <span class="end"><label class="vh" for="review-status">Show</label>
            <select id="review-status" class="select small"></select></span></div>
          <div class="targets-box" tabindex="-1"></div></section>
        <section class="log-part" aria-labelledby="h-log"><div class="bar"><h3 id="h-log">Log</h3>
          <span class="check"></span><span class="end"><button type="button" class="btn small" data-do="file"
            >{icon("down")}Download as CSV</button></span></div>
          <p class="hint">Entries are only added. Each one names the digest of the one before, so a change or a gap
            shows.</p><div class="log-box" tabindex="0" role="region" aria-label="Log entries"></div></section></div>
        {_decision()}""",
        js_on_load="coft.review.sheet(element, trigger, props, watch, ['read', 'act', 'decide', 'file'])",
        apply_default_css=False,
        elem_id="review-sheet",
        elem_classes=["coft"],
    )


def agreement_part() -> gr.HTML:
    """Place the choice of two reviewers and how far they agree."""
    return gr.HTML(
        html_template="""<section class="agreement" aria-labelledby="h-agree">
        <h3 id="h-agree">Agreement</h3>
        <p class="hint">Of all that both judged: how often they said the same, beyond what chance gives.</p>
        <div class="agree-form">
          <div class="field"><label for="agree-first">First reviewer</label>
            <select id="agree-first" class="select"></select></div>
          <div class="field"><label for="agree-second">Second reviewer</label>
            <select id="agree-second" class="select"></select></div>
          <div class="field"><label for="agree-over">Over</label><select id="agree-over" class="select">
            <option value="all">all sessions</option><option value="this">this session</option></select></div></div>
        <div class="agree-result" aria-live="polite"></div></section>""",
        js_on_load="coft.agreement.mount(element, trigger, props, watch, ['agree'])",
        apply_default_css=False,
        elem_id="review-agreement",
        elem_classes=["coft"],
    )


def _decision() -> str:
    choices = "".join(
        f'<label class="choice"><input type="radio" name="decision" value="{verdict}" required>{icon(verdict)}'
        f"{verdict.capitalize()}</label>"
        for verdict in VERDICTS
    )
    return f"""<dialog id="decide" class="sheet coft" aria-labelledby="decide-title"><form method="dialog">
          <h2 id="decide-title"></h2><ul class="sides"></ul>
          <div class="choices-row" role="radiogroup" aria-label="Decision">{choices}</div>
          <div class="field"><label for="decide-note">Why</label>
            <textarea id="decide-note" class="input" rows="3" maxlength="20000"></textarea></div>
          <p class="hint">The decision stands until somebody judges this again.</p>
          <div class="row"><button type="button" class="btn" data-do="cancel">Cancel</button>
            <button class="btn primary" value="yes">Decide</button></div></form></dialog>"""
