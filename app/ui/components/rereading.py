"""The panel that reads the shown chain at another lambda or alpha: two sliders, a strip of marks, and a table."""

from __future__ import annotations

import gradio as gr

from app.ui.components.markup import icon

EVENTS = "['reread', 'depart', 'halt']"


def rereading() -> gr.HTML:
    """Place the panel; it triggers ``reread``, ``depart`` and ``halt``, and receives their messages."""
    return gr.HTML(
        html_template=f"""<section class="rereading" aria-labelledby="h-reread" hidden>
        <div class="bar"><h2 id="h-reread">What if lambda or alpha were different?</h2>
          <div class="end"><button type="button" class="btn small" data-do="reset" disabled>Back to the audit’s
            own</button></div></div>
        <p class="hint about">Reads the stored numbers of this chain again. The model does not run, and this audit stays
          as it is.</p>
        <p class="came" role="status" hidden></p>
        <p class="blocked" role="alert" hidden></p>
        <p class="sub why" hidden></p>
        <div class="body" hidden>
          <div class="knobs">{_knob("lam", "Lambda", "How much the masked reading counts.", "0", "1")}
            {_knob("alpha", "Alpha", "How often a true next word may be missed.", "0.01", "0.5")}</div>
          <p class="madefor" hidden><span class="hint">Calibrated at</span></p>
          <p class="wrong" role="alert" hidden></p>
          <p class="standing"><span class="badge"></span><span class="words"></span></p>
          <ul class="cautions"></ul>
          <div class="told-now" role="status"><p class="says token"></p><p class="sub certificate"></p></div>
          <div class="restrip" aria-hidden="true"></div>
          <div class="rekey" aria-hidden="true">{_key()}</div>
          <p class="hint reach"></p>
          <div class="differing" hidden><div class="scroll" tabindex="0" role="group" aria-label="Steps that differ">
            <table><caption class="vh">Steps that differ</caption><thead><tr><th scope="col" class="n">Step</th>
              <th scope="col">Written</th><th scope="col">Would be</th><th scope="col">Certified then</th>
              <th scope="col">Certified now</th><th scope="col"><span class="vh">Action</span></th></tr></thead>
              <tbody></tbody></table></div>
            <p class="hint more" hidden></p></div>
          <div class="onward"><h3>Continue from there</h3>
            <div class="ways">
              <div class="way"><button type="button" class="btn" data-do="fork"></button><p class="hint"></p></div>
              <div class="way"><button type="button" class="btn" data-do="depart"></button><p class="hint"></p></div>
            </div>
            <div class="working" role="status" hidden><i class="spin" aria-hidden="true"></i><span class="words"></span>
              <button type="button" class="btn small" data-do="halt">Stop</button></div></div>
        </div></section>""",
        js_on_load=f"coft.rereading.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="rereading",
        elem_classes=["coft"],
    )


def _knob(name: str, title: str, says: str, low: str, high: str) -> str:
    """A slider with its number box; the mark under the slider stands at the audit's own value."""
    return f"""<div class="knob" data-knob="{name}">
        <label for="reread-{name}">{title}</label>
        <input type="number" class="input small tnum" id="reread-{name}-number" aria-label="{title}, as a number"
          step="any" inputmode="decimal" autocomplete="off" disabled>
        <span class="track"><input type="range" id="reread-{name}" min="{low}" max="{high}" step="0.01"
          aria-describedby="reread-{name}-hint" disabled><i class="own" aria-hidden="true"></i></span>
        <p class="hint" id="reread-{name}-hint">{says}</p></div>"""


def _key() -> str:
    items = (
        ("<b>≠</b>", "another token"),
        (icon("cross"), "loses its certificate"),
        (icon("tick"), "gains one"),
        ("<b>?</b>", "cannot be told"),
    )
    return "".join(f'<span><span class="mk">{sign}</span>{name}</span>' for sign, name in items)
