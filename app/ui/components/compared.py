"""Chains beside each other: what is compared, the aligned columns, and what is said of them. The browser fills it."""

from __future__ import annotations

import gradio as gr

from app.ui.components.markup import icon
from app.ui.components.pieces import markup

EVENTS = "['menu', 'begin', 'run', 'pause', 'open', 'find', 'pick', 'csv', 'discard']"

FIGURES = (
    (
        "vanilla",
        "Divergence from vanilla by step",
        "Total variation between what a column draws from and what vanilla says after the same text: 0 is the same "
        "distribution, 1 another one altogether. The numbers give KL in nats too.",
    ),
    (
        "sensitivity",
        "Sensitivity over time",
        "How much likelier the written token is with the attribute visible, in log units: 0.69 is twice as likely.",
    ),
    (
        "divergence",
        "Divergence from the masked reading by step",
        "How far a column’s own distribution is from the masked reading: KL divergence in nats.",
    ),
    (
        "changed",
        "Changed tokens so far",
        "Aligned steps at which a column has another token than the first one, or none.",
    ),
)
"""Name, title and explanation of each picture."""


def compare_head() -> None:
    """Place the title, what can be done, and the choice between a new prompt, a prompt set and stored audits."""
    markup(
        f"""<div class="pagehead"><h1>Compare</h1><p class="sub">One prompt or a set of them, several ways to
          decode it.</p>
        <div class="actions" id="cmp-actions">
          <button type="button" class="btn" data-cmp="change" aria-expanded="true" hidden>Change</button>
          <button type="button" class="btn" data-cmp="csv" hidden>{icon("down")}CSV</button>
          <button type="button" class="btn" data-cmp="discard" hidden>Discard</button>
          <button type="button" class="btn" data-cmp="pause" hidden>{icon("pause")}Pause</button>
          <button type="button" class="btn primary" data-cmp="go" disabled>{icon("run")}<span class="word">Run</span
            ></button></div></div>
        <div class="modes" role="group" aria-label="What to compare">
          <button type="button" class="btn" data-cmp="mode" data-mode="new" aria-pressed="true">A new prompt</button>
          <button type="button" class="btn" data-cmp="mode" data-mode="set" aria-pressed="false">A prompt set</button>
          <button type="button" class="btn" data-cmp="mode" data-mode="stored" aria-pressed="false">Stored audits
            </button>
        </div>""",
        "cmp-head",
    )


def compare_setup() -> None:
    """Place the columns of a new run, and the pickers of stored audits."""
    markup(
        f"""<section class="cmp-columns" aria-labelledby="h-columns">
          <div class="bar"><h2 id="h-columns">Columns</h2><span class="hint">compared with the first</span>
            <div class="end"><button type="button" class="btn small" data-cmp="add">Add column</button></div></div>
          <div class="colcards"></div>
          <details class="shared"><summary>{icon("chev", "chev")}Model, sampling, length and seed<span class="hint tnum"
            ></span></summary><div class="filters">{_shared()}</div></details></section>
        <section class="cmp-picker" aria-labelledby="h-picker" hidden>
          <div class="bar"><h2 id="h-picker">Stored audits</h2><span class="hint">choose two to four, or several
            branches of one</span></div>
          <div class="pickgrid"><div><div class="field"><label for="cmp-search">Search</label><input class="input"
            id="cmp-search" type="search" autocomplete="off" spellcheck="false" placeholder="Name, prompt or tag"></div>
            <ul class="cmp-found" aria-label="Audits found"></ul><p class="hint more" role="status"></p></div>
            <div><h3 id="h-picked">Chosen</h3><ol class="cmp-picked" aria-labelledby="h-picked"></ol></div></div>
        </section>""",
        "cmp-setup",
    )


def compare_stage() -> gr.HTML:
    """Place prompt, columns and the selected row; it triggers everything and receives the messages."""
    return gr.HTML(
        html_template="""<section aria-label="Comparison"><div class="notice" role="alert" hidden></div>
        <div class="nothing"><p class="sub">Nothing is compared yet.
          Type a prompt, or take a prompt set, and press <strong>Run</strong>:
          each column writes its own continuation, and they are aligned token by token. Or choose audits that you have
          already.</p></div>
        <div class="compared" hidden>
          <div class="editor cmp-prompt"></div>
          <ul class="parting" aria-live="polite"></ul>
          <div class="lanebar"><h2 id="h-lanes">Columns, aligned</h2>
            <span class="hint tnum counted" role="status"></span>
            <label class="only"><input type="checkbox" data-cmp="only">Only differences</label></div>
          <div class="across" tabindex="0" role="region" aria-labelledby="h-lanes"><div class="cmp-lanes">
            <div class="laneheads"></div>
            <div class="cmp-rows"><table><caption class="vh">Aligned tokens; arrow keys select a row</caption>
              <thead></thead><tbody></tbody></table></div></div></div>
          <p class="hint">≠ marks steps at which a column leaves the first one’s text; a dash is a gap left by the
            alignment. Bars to the right: likelier with the attribute visible. Up and down select a row.</p>
          <section class="cmp-chosen" aria-labelledby="h-chosen" hidden><div aria-live="polite">
            <div class="bar"><h2 id="h-chosen"></h2><span class="hint"></span></div><p class="verdict"></p></div>
            <div class="views"></div></section>
        </div></section>""",
        js_on_load=f"coft.compare.mount(element, trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="comparison",
        elem_classes=["coft"],
    )


def compare_side() -> tuple[gr.Plot, ...]:
    """Place the summary, the pictures, the settings that differ, and the notes."""
    markup(
        """<section aria-labelledby="h-sum"><div class="bar"><h2 id="h-sum">Summary</h2></div><div class="sum scrolls"
          tabindex="0" role="region" aria-label="Summary, table"></div>
        <p class="hint">From vanilla: how far what a column draws from lies from vanilla’s distribution after the same
          text, on average over its steps; a dash where that is not known, or where a column decodes a checkpoint of
          its own. Overruled: certification refused the token that the policy likes best, and another one was
          certified. Time: the median of a column’s steps but the first, waiting for the model not counted. Keys and
          values: computed from the model’s shape for all readings that the column runs, the masked one included, which
          shows the sensitivity.</p></section>""",
        "cmp-summary",
    )
    plots = tuple(_figure(*item) for item in FIGURES)
    markup(
        """<section aria-labelledby="h-settings"><div class="bar"><h2 id="h-settings">Settings that differ</h2></div>
          <div class="settings scrolls" tabindex="0" role="region" aria-label="Settings that differ, table"></div>
        </section>
        <section class="notes" aria-labelledby="h-notes"><div class="bar"><h2 id="h-notes">Notes</h2></div>
          <ul class="cautions"></ul></section>""",
        "cmp-rest",
    )
    return plots


def _figure(name: str, title: str, about: str) -> gr.Plot:
    saves = "".join(
        f'<button type="button" class="link" data-cmp="image" data-figure="{name}" data-format="{kind}" '
        f'data-title="{title}" aria-label="Save “{title}” as {kind.upper()}">{word}</button>'
        for kind, word in (("png", "image"), ("svg", "SVG"))
    )
    markup(
        f"""<div class="figcaption"><h2>{title}</h2><span class="end hint">
          <button type="button" class="link" data-cmp="numbers" data-figure="{name}" aria-expanded="false"
            aria-controls="numbers-{name}" aria-label="{title}, numbers">numbers</button>{saves}</span></div>""",
        f"cap-{name}",
    )
    plot = gr.Plot(show_label=False, container=False, elem_classes=["chart"], elem_id=f"plot-{name}")
    markup(
        f"""<div class="key" aria-hidden="true"></div><p class="hint">{about} <span class="peaks"></span></p>
        <div class="cmp-numbers scrolls" id="numbers-{name}" tabindex="0" role="region"
          aria-label="{title}, numbers" hidden></div>""",
        f"after-{name}",
    )
    return plot


def _shared() -> str:
    fields = (
        ("model", "Model", 'type="text" spellcheck="false"'),
        ("max_new_tokens", "Steps at most", 'type="number" min="1" max="1024" step="1"'),
        ("seed", "Seed", 'type="number" step="1"'),
        ("temperature", "Temperature", 'type="number" min="0.1" max="2" step="0.05"'),
        ("top_p", "Top-p (1 is off)", 'type="number" min="0.05" max="1" step="0.01"'),
        ("top_k", "Top-k (0 is off)", 'type="number" min="0" step="1"'),
    )
    inputs = "".join(
        f'<div class="field"><label for="cmp-{name}">{label}</label><input class="input" id="cmp-{name}" '
        f'data-shared="{name}" {kind}></div>'
        for name, label, kind in fields
    )
    return (
        f'{inputs}<div class="field"><label for="cmp-greedy">Next token</label><select class="select" id="cmp-greedy" '
        'data-shared="greedy"><option value="">drawn, with the same seed</option>'
        '<option value="yes">always the likeliest</option></select></div>'
    )
