"""The transcript: branches, controls, overview and tokens. The browser appends tokens to it, one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

import gradio as gr

from app.audit.words import family_choices
from app.shared.charts import candidates_figure, steps_figure
from app.shared.markup import icon, numbers, tools

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


BRANCH_EVENTS = "['tree', 'rename', 'ponder', 'prune', 'beside']"

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
        js_on_load=f"coft.branches.mount(element, trigger, props, watch, {BRANCH_EVENTS})",
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


TRANSCRIPT_EVENTS = "['open', 'start', 'step', 'run', 'more', 'pause', 'fork', 'report', 'overhead']"


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
        js_on_load=f"coft.session.mount(trigger, props, watch, {TRANSCRIPT_EVENTS})",
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


def inspector() -> None:
    """Place head, candidate table, chart and figures of the selected token."""
    gr.HTML(
        html_template="""<section aria-label="Selected token"><div class="unselected">
        <h2>Selected token</h2><p class="sub">Nothing to show yet. After Start, each token explains itself here: what
        both readings say of it, which words were certified, and how far the attribute moved it.</p></div>
        <div class="selected" hidden>
        <div class="announce" aria-live="polite"><div class="stephead"><span class="bigtok"></span>
          <span class="marks"></span><span class="sub tnum where"></span></div>
        <p class="verdict"></p><p class="hint because"></p></div>
        <table class="cand"><caption class="vh">Candidates at this step</caption>
          <colgroup><col><col class="c-p"><col class="c-p"><col class="c-p"><col class="c-p"><col class="c-s"><col
            class="c-a"></colgroup>
          <thead><tr><th scope="col">Token</th><th scope="col" class="n" aria-sort="descending">Factual ↓</th>
            <th scope="col" class="n">Masked</th><th scope="col" class="n drawn-from">Fused</th>
            <th scope="col" class="n" title="Joint support: the smaller of masked and fused">Joint</th>
            <th scope="col" title="Certified when joint support reaches the threshold">Certified</th>
            <th scope="col"><span class="vh">Force</span></th></tr></thead><tbody></tbody></table>
        <button type="button" class="btn small quiet" data-do="rest" hidden></button>
        <form class="typed"><label class="vh" for="typed">Any other token</label>
          <input id="typed" class="input" autocomplete="off" spellcheck="false"
            placeholder="Force any other token: type it, a leading space counts">
          <button class="btn">Force</button></form>
        <table class="byfamily" hidden><caption>What each family says of this token</caption>
          <thead><tr><th scope="col">Family masked</th><th scope="col" class="n">Masked</th>
            <th scope="col" class="n" title="Joint support: the smaller of masked and fused">Joint</th>
            <th scope="col" class="n">τ</th><th scope="col">Certified</th></tr></thead><tbody></tbody></table>
        </div></section>""",
        js_on_load="coft.inspector.mount(element)",
        apply_default_css=False,
        elem_id="inspector",
        elem_classes=["coft"],
    )
    gr.Plot(candidates_figure(), show_label=False, container=False, elem_id="candidates-plot", elem_classes=["chart"])
    gr.HTML(
        html_template=f"""<div class="after" hidden><div class="key" aria-hidden="true">
        <span><i class="k-f"></i>factual</span><span><i class="k-m"></i>masked</span>
        <span><i class="k-x"></i><span class="drawn-from">fused</span></span>
        <span><i class="k-t"></i>threshold</span></div>
        <div class="undertools">{tools("candidates", "Candidates")}</div>{numbers("candidates")}
        <dl class="facts"></dl>
        <section class="shares" aria-labelledby="h-shares" hidden><h3 id="h-shares">What each span contributes</h3>
          <table><caption class="vh">Contributions of the masked spans to this token</caption>
            <thead><tr><th scope="col">Span shown again</th><th scope="col"><span class="vh">Bar</span></th>
              <th scope="col" class="n" title="Difference of log-probabilities">Log ratio</th>
              <th scope="col" class="n" title="Difference of logits">Sensitivity</th></tr></thead>
            <tbody></tbody></table>
          <p class="hint">Contributions need not sum to the total: spans can stand in for each other, or act only
            together.</p></section></div>""",
        js_on_load="coft.inspector.facts(element)",
        apply_default_css=False,
        elem_id="facts",
        elem_classes=["coft"],
    )


def steps_chart() -> None:
    """Place the chart of set size and threshold by step, and its numbers."""
    title = "Certified-set size and threshold by step"
    gr.HTML(
        html_template=f"""<div class="figcaption" hidden><h2 id="h-steps">{title}</h2>{tools("steps", title)}
        <span class="hint">bars: tokens in the set; line: τ</span></div>""",
        js_on_load="coft.charts.caption(element)",
        apply_default_css=False,
        elem_id="steps-caption",
        elem_classes=["coft"],
    )
    gr.Plot(steps_figure(), show_label=False, container=False, elem_id="steps-plot", elem_classes=["chart"])
    gr.HTML(html_template=numbers("steps"), apply_default_css=False, elem_id="steps-numbers", elem_classes=["coft"])


def contributions() -> gr.HTML:
    """Place the section; it triggers ``contribute`` and receives the contributions."""
    return gr.HTML(
        html_template="""<section class="spans" aria-labelledby="h-spans" hidden>
        <div class="bar"><h2 id="h-spans">Contributions of the spans</h2>
          <div class="end"><button type="button" class="btn small" data-do="contribute">What does each span
            contribute?</button></div></div>
        <p class="hint lead">Shows one masked span at a time to the masked branch and sees how far each token moves.
          Runs the model again over the whole chain.</p>
        <div class="working" role="status" hidden><i class="spin" aria-hidden="true"></i>Computing …</div>
        <div class="found" hidden>
          <div class="matrix" tabindex="0" role="group" aria-label="Contributions by span and step"></div>
          <div class="key" aria-hidden="true"><span><i class="k-up"></i>likelier with the span visible</span>
            <span><i class="k-down"></i>less likely</span><span><i class="k-hot"></i>0.50 or more</span>
            <span>the larger, the stronger</span></div>
          <p class="hint">Contributions need not sum to the total: spans can stand in for each other, or act only
            together.</p>
          <details class="numbers"><summary><svg class="icon chev" aria-hidden="true"><use href="#i-chev"/></svg>Numbers
            </summary><div class="scroll" tabindex="0" role="group" aria-label="Contributions, numbers"></div></details>
        </div></section>""",
        js_on_load="coft.spans.mount(element, trigger, props, watch, ['contribute'])",
        apply_default_css=False,
        elem_id="contributions",
        elem_classes=["coft"],
    )


REREADING_EVENTS = "['reread', 'depart', 'halt']"


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
        js_on_load=f"coft.rereading.mount(element, trigger, props, watch, {REREADING_EVENTS})",
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
