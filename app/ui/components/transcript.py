"""The transcript: branches, controls, overview and tokens. The browser appends tokens to it, one by one."""

from __future__ import annotations

import gradio as gr

from app.ui.components.branch_tree import branch_panel
from app.ui.components.markup import icon

EVENTS = "['open', 'start', 'step', 'run', 'more', 'pause', 'fork', 'report', 'overhead']"


def transcript() -> gr.HTML:
    """Place the transcript and its wire to the server.

    Returns:
        The wire: it triggers everything that concerns a session and receives its messages. It is a component without
        content, because Gradio renders a component's whole template anew with each message.
    """
    gr.HTML(
        html_template=f"""<section aria-labelledby="h-chain">
        <div class="bar"><h2 id="h-chain">Transcript</h2><nav class="crumbs" aria-label="Branch"></nav></div>
        {branch_panel()}
        <div class="controls">
          <button type="button" class="btn" data-do="back" disabled>{icon("back")}Back <kbd>←</kbd></button>
          <button type="button" class="btn" data-do="step" disabled>Step {icon("step")}<kbd>→</kbd></button>
          <button type="button" class="btn primary" data-do="go">{icon("run")}<span class="word">Start</span>
            <kbd>space</kbd></button>
          <button type="button" class="btn" data-do="until" aria-haspopup="dialog" aria-expanded="false" disabled
            >Run until… {icon("chev", "below")}</button>
          <button type="button" class="btn" data-do="pause" disabled>{icon("pause")}Pause</button>
          <span class="hint tnum end count" role="status"></span></div>
        {_until()}
        <div class="ended"><p class="hint stopped" role="status"></p>
          <a class="btn small quiet" id="to-swap" href="./swap" hidden>Swap the attribute</a>
          <button type="button" class="btn small quiet" data-do="report" disabled
            >{icon("down")}Report (CSV)</button></div>
        <div class="notice" role="alert" hidden></div>
        <ul class="cautions"></ul>
        <div class="empty"><p>Press <strong>Start</strong>. The model then writes one token at a time, reading your
          prompt as you typed it and with the marked spans masked.</p>
          <ol><li>Every token shows by its shape whether all readings support it.</li>
            <li>Select a token to see its probabilities and the words that could have stood there.</li>
            <li>Force another word, and the text goes on from there in a branch of its own.</li></ol></div>
        <div class="chain" hidden>
          <div class="overview" role="img"></div><div class="ovlab" aria-hidden="true"></div>
          {_seek()}
          <div class="reel"><div class="strip" role="group" aria-label="Tokens"></div></div>
          <div class="legend" role="group" aria-label="Key">{_legend()}<span class="hint">striped bar: masking raises
            it</span></div>
          <details class="madewith"><summary>{icon("chev", "chev")}Method<span class="hint tnum"></span></summary>
            <p class="hint"></p><dl class="finger"></dl></details>
          {_whole()}
        </div></section>""",
        js_on_load="coft.session.place(element)",
        apply_default_css=False,
        elem_id="transcript",
        elem_classes=["coft"],
    )
    return gr.HTML(
        html_template="<span></span>",
        js_on_load=f"coft.session.mount(trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="transcript-wire",
        elem_classes=["wire"],
    )


def _until() -> str:
    """Where a run can stop, in a panel that opens at its button."""
    return """<div class="untilbox" popover="auto" role="dialog" aria-label="Run until">
          <h3>Run until</h3>
          <div><button type="button" class="btn small" data-until="fallback">The first fallback</button>
            <span class="hint">no token reaches the threshold</span></div>
          <div><button type="button" class="btn small" data-until="overruled">The first overruled favourite</button>
            <span class="hint">what is likeliest without the mask is not certified</span></div>
          <div><button type="button" class="btn small" data-until="sensitive">The first sensitive token</button>
            <label class="hint">from <input class="input" type="number" name="threshold" value="0.5" min="0.05"
              step="0.05" aria-label="Sensitivity to stop at, in log units"> log units</label></div>
          <div><button type="button" class="btn small" data-until="steps">More tokens</button>
            <label class="hint">as many as <input class="input" type="number" name="steps" value="20" min="1" step="1"
              aria-label="Tokens to write"></label></div></div>"""


def _seek() -> str:
    """The way to a step: by its number, or to the next one that is remarkable."""
    return """<div class="seek">
            <form class="jump" novalidate><label for="jump">Step</label>
              <input id="jump" class="input tnum" type="number" min="1" step="1" autocomplete="off"
                aria-describedby="jump-of"><kbd>G</kbd><span class="hint tnum" id="jump-of"></span></form>
            <span class="finding"><label class="vh" for="seek-kind">Tokens to look for</label>
              <select id="seek-kind" class="select small"></select>
              <button type="button" class="btn small" data-do="find-back" aria-label="Previous of these">‹</button>
              <button type="button" class="btn small" data-do="find-next" aria-label="Next of these"
                >›<kbd>N</kbd></button></span></div>"""


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
