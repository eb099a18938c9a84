"""The parts of the swap page: what is exchanged, the variants, and what follows them. The browser fills them."""

from __future__ import annotations

import gradio as gr

from app.ui.components.markup import icon

EVENTS = "['open', 'look', 'run', 'cancel', 'at', 'audit', 'table']"
USUAL_LENGTH = 12
LONGEST = 256


def swap_choices() -> None:
    """Place the choice of spans, pronouns and groups."""
    pronouns = "".join(
        f'<label class="tickbox"><input type="checkbox" data-pronoun="{name}"> {name}</label>'
        for name in ("she", "he", "they")
    )
    gr.HTML(
        html_template=f"""<section aria-labelledby="h-exchange" class="exchange">
        <div class="bar"><h2 id="h-exchange">What is exchanged</h2></div>
        <p class="sub nothing">The marked words of your prompt appear here. Type a prompt that names a person’s gender,
          origin, religion or another attribute, or take an example.</p>
        <div class="choices" hidden>
          <fieldset class="spans"><legend>Words that are replaced</legend><div class="boxes"></div>
            <p class="hint">Unticked words stay as they are in every variant.</p></fieldset>
          <fieldset class="sets"><legend>Pronouns</legend><div class="boxes">{pronouns}</div>
            <p class="hint why"></p></fieldset>
          <fieldset class="roles" hidden><legend>How pronouns are read</legend><div class="list"></div></fieldset>
          <fieldset class="groups" hidden><legend>Groups</legend>
            <div class="family"><label for="swap-family">In place of words of</label>
              <select id="swap-family" class="select small"></select></div>
            <ul class="picked" aria-label="Groups that are put in place"></ul>
            <form class="own"><label class="vh" for="swap-own">A group in your own words</label>
              <input id="swap-own" class="input" autocomplete="off" maxlength="80"
                placeholder="a group in your own words">
              <button class="btn">Add</button></form>
            <p class="hint nohints" hidden>The word lists have no suggestions for this family; write your own.</p>
            <div class="offered"></div></fieldset>
          <label class="tickbox typed"><input type="checkbox" id="swap-original" checked> Compare with the prompt as
            typed</label>
        </div></section>""",
        js_on_load="coft.swap.choices(element)",
        apply_default_css=False,
        elem_id="swap-choices",
        elem_classes=["coft"],
    )


def swap_stage() -> gr.HTML:
    """Place the variants, what runs them, the head of the result, and the page's wire to the server.

    Returns:
        The wire: it triggers everything of the page and receives its messages. It is a component without content,
        because Gradio renders a component's whole template anew with each message.
    """
    gr.HTML(
        html_template=f"""<section aria-labelledby="h-variants">
        <div class="bar"><h2 id="h-variants">Variants</h2><span class="hint tnum many" role="status"></span></div>
        <p class="sub refusal">The variants of your prompt appear here.</p><div class="texts" aria-busy="false"></div>
        <ul class="cautions"></ul>
        <div class="runbar">
          <div class="field"><label for="swap-length">Tokens in each chain</label>
            <input id="swap-length" class="input tnum" type="number" min="1" max="{LONGEST}"
              value="{USUAL_LENGTH}"></div>
          <div class="field"><label for="swap-answer">Compared token</label>
            <input id="swap-answer" class="input tnum" type="number" min="1" max="{LONGEST}" value="1"
              aria-describedby="answer-hint"></div>
          <button type="button" class="btn primary" data-do="run" disabled>{icon("run")}Compare</button>
          <button type="button" class="btn" data-do="cancel" hidden>Cancel</button>
          <div class="doing" aria-hidden="true"><div class="progress"><i></i></div></div>
          <span class="hint told" role="status"></span>
          <p class="hint below" id="answer-hint">The answer: 1 is the first token after the prompt.</p></div>
        <div class="notice" role="alert" hidden></div></section>
        <section class="found" aria-labelledby="h-found" hidden>
          <div class="bar"><h2 id="h-found" tabindex="-1">What the exchange changes</h2>
            <label class="hint" for="swap-at">Compared token</label>
            <input id="swap-at" class="input small tnum" type="number" min="1" value="1">
            <span class="hint tnum of"></span><span class="hint rereads" role="status"></span>
            <span class="end"><button type="button" class="btn small quiet" data-do="picture" data-format="png"
              >{icon("down")}Picture (PNG)</button>
            <button type="button" class="btn small quiet" data-do="picture" data-format="svg">SVG</button>
            <button type="button" class="btn small quiet" data-do="table" data-table="tokens"
              >{icon("down")}Tokens (CSV)</button>
            <button type="button" class="btn small quiet" data-do="table" data-table="distances"
              >{icon("down")}Distances (CSV)</button></span></div>
          <div class="notice stale" role="status" hidden>These results belong to the choices as they were; compare again
            for the new ones.</div>
          <div class="summing"></div><ul class="check remarks"></ul>
          <div class="charthead"><h3>How likely each answer is</h3><span class="hint captioned"></span></div></section>
        <div class="empty teach"><p>Choose what is exchanged, then press <strong>Compare</strong>. Every variant is
          continued twice from the same seed: by the model alone, and under the policy.</p>
          <ol><li>You see how likely each answer is in every variant: visible, after fusion, and masked.</li>
            <li>A number says how far apart the variants are, before and after the policy.</li>
            <li>Any of the chains can be opened as an audit of its own.</li></ol></div>""",
        js_on_load="coft.swap.stage(element)",
        apply_default_css=False,
        elem_id="swap-stage",
        elem_classes=["coft"],
    )
    return gr.HTML(
        html_template="<span></span>",
        js_on_load=f"coft.swap.mount(trigger, props, watch, {EVENTS})",
        apply_default_css=False,
        elem_id="swap-wire",
        elem_classes=["wire"],
    )


def swap_body() -> None:
    """Place what stands under the chart: distances, chains and numbers."""
    gr.HTML(
        html_template='<div class="rest"></div>',
        js_on_load="coft.swap.body(element)",
        apply_default_css=False,
        elem_id="swap-body",
        elem_classes=["coft"],
    )
