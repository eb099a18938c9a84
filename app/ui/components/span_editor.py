"""The prompt and its spans: one text field over the marked text, so that mouse and keyboard select alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

import gradio as gr

from app.ui.components.markup import icon
from app.ui.presenters_session import family_choices

Scenarios = Sequence[tuple[str, Sequence[tuple[str, str, str]]]]


def span_editor(examples: Sequence[tuple[str, str]], scenarios: Scenarios = ()) -> gr.HTML:
    """Place the editor; it triggers ``detect`` and ``preview`` and receives spans and masked readings.

    Args:
        examples: Title and prompt of each example.
        scenarios: By group, title, prompt and planted probabilities of each scenario of the embedded phantom.
    """
    options = "".join(f'<option value="{escape(prompt)}">{escape(title)}</option>' for title, prompt in examples)
    families = "".join(f'<option value="{key}">{escape(name)}</option>' for name, key in family_choices())
    marks = "".join(
        f'<li><span class="sw f-{key}"></span>{escape(name)}</li>' for name, key in family_choices() if key != "other"
    )
    states = (
        '<li class="wide"><span class="sw offer"></span>suggested: not masked until you accept it</li>'
        '<li><span class="sw white"></span>kept: stays visible</li>'
    )
    names = escape(json.dumps({key: name for name, key in family_choices()}))
    hidden = "" if examples else " hidden"
    phantoms = "".join(_scenario_group(title, rows) for title, rows in scenarios)
    no_phantoms = "" if scenarios else " hidden"
    return gr.HTML(
        html_template=f"""<section aria-labelledby="h-prompt" data-families="{names}">
        <div class="bar"><h2 id="h-prompt">Prompt</h2><span class="hint">select text to mark a span</span>
          <div class="end"><label class="vh" for="examples">Examples</label>
            <select id="examples" class="select small"{hidden}><option value="">Examples</option>{options}</select>
            <label class="vh" for="phantoms">Phantom scenarios</label>
            <select id="phantoms" class="select small"{no_phantoms}><option value="">Phantom scenarios</option>
              {phantoms}</select>
            <button type="button" class="btn small quiet" data-do="undo" disabled
              title="Undo the last span edit">Undo</button>
            <button type="button" class="btn small quiet" data-do="redo" disabled>Redo</button>
            <button type="button" class="btn small" data-do="detect">Detect</button></div></div>
        <div class="editor"><div class="scroll"><div class="backdrop" aria-hidden="true"></div>
          <textarea id="prompt" aria-label="Prompt" aria-describedby="marking" rows="1" spellcheck="false"
            placeholder="Type the text that the model should continue, or take an example"></textarea></div></div>
        <p class="hint planted" role="status" hidden></p>
        <div class="marking" id="marking"><span class="hint idle">Words that name a protected attribute are found as
          you type. Select others to add them.</span>
          <span class="chosen" hidden><span class="hint">Mark</span> <q class="picked-text"></q>
          <label class="vh" for="mark-family">Family of the selected text</label>
          <span class="hint">as</span> <select id="mark-family" class="select small">{families}</select>
          <button type="button" class="btn small" data-do="mark">Mark <kbd>Alt M</kbd></button></span></div>
        <table class="spanlist" hidden><caption class="vh">Spans</caption><thead class="vh"><tr><th>Span</th>
          <th>Family</th><th>Found by</th><th>Position</th><th>Actions</th></tr></thead><tbody></tbody></table>
        <div class="offers" hidden><span class="hint" role="status"></span>
          <button type="button" class="btn small" data-do="accept-all">Accept all suggestions</button></div>
        <div class="reading" hidden><div class="subrow"><h3 id="h-reading">As the masked branch reads it</h3>
          <span class="hint tnum counts"></span></div><p class="masked" role="group"
          aria-labelledby="h-reading"></p>
          <p class="hint several" hidden></p></div>
        <ul class="cautions" aria-live="polite"></ul>
        <details class="families"><summary>{icon("chev", "chev")}Families and their marks</summary>
          <ul>{marks}{states}</ul></details></section>""",
        js_on_load="coft.editor.mount(element, trigger, props, watch, ['detect', 'preview'])",
        apply_default_css=False,
        elem_id="editor",
        elem_classes=["coft"],
    )


def _scenario_group(title: str, rows: Sequence[tuple[str, str, str]]) -> str:
    options = "".join(
        f'<option value="{escape(prompt)}" data-planted="{escape(planted)}">{escape(name)}</option>'
        for name, prompt, planted in rows
    )
    return f'<optgroup label="{escape(title)}">{options}</optgroup>'
