"""The transcript: branches, controls, overview and tokens. The browser appends tokens to it, one by one."""

from __future__ import annotations

import gradio as gr

from app.ui.components.markup import icon

EVENTS = "['open', 'start', 'step', 'run', 'pause', 'fork', 'report', 'overhead']"


def transcript() -> gr.HTML:
    """Place the transcript; it triggers everything that concerns a session and receives its messages."""
    return gr.HTML(
        html_template=f"""<section aria-labelledby="h-chain">
        <div class="bar"><h2 id="h-chain">Transcript</h2><nav class="crumbs" aria-label="Branch"></nav></div>
        <div class="controls">
          <button type="button" class="btn" data-do="back" disabled>{icon("back")}Back <kbd>←</kbd></button>
          <button type="button" class="btn" data-do="step" disabled>Step {icon("step")}<kbd>→</kbd></button>
          <button type="button" class="btn primary" data-do="go">{icon("run")}<span class="word">Start</span>
            <kbd>space</kbd></button>
          <button type="button" class="btn" data-do="pause" disabled>{icon("pause")}Pause</button>
          <span class="hint tnum end count" role="status"></span>
          <button type="button" class="btn quiet" data-do="report" disabled>{icon("down")}Report (CSV)</button></div>
        <div class="notice" role="alert" hidden></div>
        <ul class="cautions"></ul>
        <div class="empty"><p>Press <strong>Start</strong>. The model then writes one token at a time, reading your
          prompt as you typed it and with the marked spans masked.</p>
          <ol><li>Every token shows by its shape whether all readings support it.</li>
            <li>Select a token to see its probabilities and the words that could have stood there.</li>
            <li>Force another word, and the text goes on from there in a branch of its own.</li></ol></div>
        <div class="chain" hidden>
          <div class="overview" role="img"></div><div class="ovlab" aria-hidden="true"></div>
          <div class="strip" role="group" aria-label="Tokens"></div>
          <div class="legend" aria-label="Key">{_legend()}<span class="hint">striped bar: masking raises it</span></div>
          {_whole()}
        </div></section>""",
        js_on_load=f"coft.session.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="transcript",
        elem_classes=["coft"],
    )


def _whole() -> str:
    """The chain as a whole: both certificates side by side, and what each step costs."""
    return """<section class="whole" aria-labelledby="h-whole" hidden>
          <h3 id="h-whole">The chain as a whole</h3>
          <p class="sub sentence"></p><div class="answers"></div></section>
          <p class="cost hint" hidden><span class="words"></span>
            <button type="button" class="btn small quiet" data-do="overhead">Measure the cost</button>
            <span class="measured" role="status"></span></p>"""


def _legend() -> str:
    items = (
        ("", "", "certified", 0),
        ("inherited", "", "inherited", 0),
        ("open", "", "uninformative", 0),
        ("fallback", "tri", "fallback", 0),
        ("", "pin", "forced", 0),
        ("sensitive", "", "sensitive", 8),
    )
    return "".join(
        f'<span class="tok {classes}"><span class="mk">{icon(mark) if mark else ""}</span>'
        f'<span class="w">{name}</span>'
        f'<span class="heat">{f"<i style=height:{high}px></i>" if high else ""}</span></span>'
        for classes, mark, name, high in items
    )
