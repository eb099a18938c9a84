"""What an attribute swap found: in words, as tables of distances, as chains beside each other, and as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.services.policy_words import parameters_line, policy_name
from app.services.step_words import shapes
from app.services.views import Step
from app.services.views.swaps import SwapChain, SwapOutcome, SwapProgress, SwapResult
from app.ui.components.markup import icon, table
from app.ui.figures_swap import drawn_tokens, swap_figure
from app.ui.presenters import spoken_state, token_marks
from app.ui.presenters_format import plural, probability, quoted, shown_token
from app.ui.presenters_session import Message, finished_text
from app.ui.presenters_swap_form import LETTERS, variant_name
from app.ui.presenters_swap_readings import policy_of, view_name, view_sentence

VANILLA = "vanilla"


def result_message(result: SwapResult) -> Message:
    """Everything that the page shows of a comparison."""
    figure = swap_figure(result)
    return {
        "kind": "result",
        "number": result.number,
        "answer": result.answer_step + 1,
        "most": result.common_steps,
        "lead": lead(result),
        "head": head_html(result),
        "body": body_html(result),
        "figure": {name: part for name, part in figure.to_plotly_json().items() if name in ("data", "layout")},
        "caption": figure_caption(result),
        "spoken": figure_spoken(result),
        "notes": list(result.notes),
    }


def progress_message(progress: SwapProgress) -> Message:
    """How far a comparison is."""
    return {
        "kind": "progress",
        "number": progress.number,
        "share": round(progress.share, 4),
        "text": f"{progress.label}, {policy_name(progress.decoding)}",
    }


def lead(result: SwapResult) -> str:
    """The comparison in one sentence: the largest distance in each view."""
    parts = []
    for view in result.views:
        value = distance(result.largest(view))
        if view == result.views[0]:
            a, b = furthest(result, view)
            value = f"up to {value} between {quoted(a)} and {quoted(b)}"
        parts.append(view_sentence(result, view).format(value))
    return f"{parts[0]}; {', '.join(parts[1:])}." if len(parts) > 1 else f"{parts[0]}."


def furthest(result: SwapResult, view: str) -> tuple[str, str]:
    """Labels of the two variants that are furthest apart in a view."""
    gap = max(result.gaps, key=lambda item: item.of(view))
    return result.outcomes[gap.first].variant.label, result.outcomes[gap.second].variant.label


def distance(value: float) -> str:
    """A total variation with two places; one that is zero but for rounding errors reads as 0.00."""
    return "0.00" if value < 1e-6 else probability(value)


def head_html(result: SwapResult) -> str:
    """The sentence, and largest and mean distance by view."""
    rows = []
    for view in result.views:
        name, meaning = view_name(result, view)
        largest = result.largest(view)
        between = " and ".join(escape(label) for label in furthest(result, view)) if largest >= 1e-6 else "–"
        rows.append(
            [
                f'<th scope="row">{name}<span class="hint">{meaning}</span></th>',
                f"<b>{distance(largest)}</b>",
                between,
                distance(result.mean(view)),
            ]
        )
    heads = [("Reading", ""), ("Largest distance", "n"), ("between", ""), ("Mean of all pairs", "n")]
    return (
        f'<p class="lead">{escape(lead(result))}</p>'
        '<p class="hint">Distance is total variation: the share of the probability of the next token that moves when '
        "one variant takes the other’s place. 0 is no difference, 1 is nothing in common.</p>"
        f"{table(heads, rows, 'plain summary', 'Largest and mean distance by reading')}"
    )


def figure_caption(result: SwapResult) -> str:
    """What the chart shows, and what it leaves to the table."""
    shown = len(drawn_tokens(result))
    rest = f"the {shown} of {len(result.tokens)} candidates" if shown < len(result.tokens) else "the candidates"
    return f"{rest[:1].upper()}{rest[1:]} for token {result.answer_step + 1}, those that differ most first"


def figure_spoken(result: SwapResult) -> str:
    """The chart for a screen reader."""
    views = ", ".join(view_name(result, view)[0].lower() for view in result.views)
    return (
        f"Probability of the candidates for token {result.answer_step + 1} in {plural(len(result.outcomes), 'variant')}"
        f", one panel each for {views}. The numbers stand in a table below."
    )


def body_html(result: SwapResult) -> str:
    """Distances of all pairs, chains and numbers."""
    heats = "".join(heat_table(result, view) for view in result.views)
    wide = " four" if len(result.views) == 4 and len(result.outcomes) > 3 else ""
    return (
        '<section aria-labelledby="h-heats"><h3 id="h-heats">How far apart the variants are</h3>'
        f'<div class="heats{wide}" style="--least:{120 + 50 * len(result.outcomes)}px">{heats}</div></section>'
        f'<section aria-labelledby="h-chains"><h3 id="h-chains">What each variant leads to</h3>{chains_html(result)}'
        f"</section>{numbers_html(result)}"
    )


def heat_table(result: SwapResult, view: str) -> str:
    """Distances of all pairs in a view; the number stands in the cell, its shade only repeats it."""
    known = {(gap.first, gap.second): gap.of(view) for gap in result.gaps}
    known |= {(second, first): value for (first, second), value in known.items()}
    shown = list(zip(LETTERS, result.outcomes, strict=False))
    head = [
        ("Variant", ""),
        *((f'<abbr title="{escape(o.variant.label)}">{letter}</abbr>', "n") for letter, o in shown),
    ]
    rows = []
    for i, (letter, outcome) in enumerate(shown):
        label = outcome.variant.label
        cells = [f'<th scope="row" title="{escape(label)}">{variant_name(letter, label)}</th>']
        cells += [_heat_cell(known.get((i, j))) for j in range(len(shown))]
        rows.append(cells)
    name, meaning = view_name(result, view)
    return (
        f'<figure class="heat-table"><figcaption><b>{name}</b> <span class="hint">{meaning}</span></figcaption>'
        f'<div class="scroll" tabindex="0" role="group" aria-label="Distances, {name.lower()}">'
        f"{table(head, rows, 'heat-cells', f'Total variation between variants: {name.lower()}')}</div></figure>"
    )


def _heat_cell(value: float | None) -> str:
    if value is None:
        return '<td class="n same"><span class="vh">the same variant</span></td>'
    return f'<td class="n" style="--v:{100 * value:.0f}%">{distance(value)}</td>'


def chains_html(result: SwapResult) -> str:
    """Each variant's chains under vanilla decoding and under the policy beside each other."""
    policy = policy_of(result)
    rows = "".join(
        f'<div class="versus" role="group" aria-label="{escape(outcome.variant.label)}">'
        f"<h4>{variant_name(letter, outcome.variant.label)}</h4>"
        f"{_chain(result, index, outcome, VANILLA)}{_chain(result, index, outcome, policy)}</div>"
        for index, (letter, outcome) in enumerate(zip(LETTERS, result.outcomes, strict=False))
    )
    return (
        '<p class="hint key-line">Filled: certified. Outlined: not certified. Dashed: no threshold of its own. '
        f"Plain: vanilla. Framed: token {result.answer_step + 1}, which is compared.</p>{rows}"
    )


def _chain(result: SwapResult, index: int, outcome: SwapOutcome, decoding: str) -> str:
    alone = decoding == VANILLA
    chain = outcome.vanilla if alone else outcome.policy
    name = escape(policy_name(decoding))
    about = "" if alone else f'<span class="hint">{escape(parameters_line(chain.start.settings))}</span>'
    which = "vanilla" if alone else "policy"
    tokens = "".join(token_html(step, result.answer_step, alone) for step in chain.steps)
    label = f"{policy_name(decoding)}, {outcome.variant.label}"
    end = f", {finished_text(chain.finished)}" if chain.finished != "length" else ""
    return (
        f'<div class="one"><p class="who">{name}{about}<span class="hint tnum">{chain_claim(chain, alone)}{end}</span>'
        f'<button type="button" class="btn small" data-do="audit" data-variant="{index}" data-decoding="{which}" '
        f'aria-label="Open as audit: {escape(label)}">Open as audit</button></p>'
        f'<p class="strip" role="group" aria-label="{escape(label)}">{tokens}</p></div>'
    )


def chain_claim(chain: SwapChain, alone: bool) -> str:
    """What may be said of a chain's tokens."""
    total = plural(len(chain.steps), "token")
    if alone:
        return f"{total}, nothing is certified"
    if chain.certificate != "certified":
        return f"{total}, {escape(chain.certificate)}"
    good = sum(step.certified for step in chain.steps)
    return f"{good} of {total} certified"


def token_html(step: Step, answer_step: int, alone: bool) -> str:
    """A token with its marks; vanilla decoding has none, since it certifies nothing."""
    classes = ["bare"] if alone else shapes(step)
    glue = ["glue"] if step.index > 0 and not step.token[:1].isspace() else []
    now = ["now"] if step.index == answer_step else []
    marks = "" if alone else "".join(icon(name) for name in token_marks(step))
    said = f"step {step.index + 1}" if alone else spoken_state(step)
    if now:
        said += ", compared"
    return (
        f'<span class="tok {" ".join([*classes, *glue, *now])}" title="{escape(said)}"><span class="mk">{marks}</span>'
        f'<span class="w">{escape(shown_token(step.token))}</span><span class="vh"> ({escape(said)}) </span></span>'
    )


def numbers_html(result: SwapResult) -> str:
    """All candidates by reading and variant, folded."""
    letters = LETTERS[: len(result.outcomes)]
    names = [escape(view_name(result, view)[0]) for view in result.views]
    top = "".join(f'<th scope="colgroup" colspan="{len(letters)}">{name}</th>' for name in names)
    second = "".join(
        f'<th scope="col" class="n"><abbr title="{escape(o.variant.label)}">{letter}</abbr></th>'
        for _ in result.views
        for letter, o in zip(letters, result.outcomes, strict=False)
    )
    rows = "".join(
        f'<tr><th scope="row" class="mono">{escape(shown_token(token.token))}</th>'
        + "".join(f'<td class="n">{_small(value)}</td>' for view in result.views for value in token.of(view))
        + "</tr>"
        for token in result.tokens
    )
    count = plural(len(result.tokens), "candidate")
    return (
        f'<details class="numbers"><summary>{icon("chev", "chev")}All numbers as a table'
        f'<span class="hint tnum">{count}, {key_text(result.outcomes)}</span></summary>'
        '<div class="scroll" tabindex="0" role="group" aria-label="Probabilities of all candidates">'
        '<table class="plain">'
        '<caption class="vh">Probability of each candidate by reading and variant</caption>'
        f'<thead><tr><th scope="col" rowspan="2">Token</th>{top}</tr><tr>{second}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def key_text(outcomes: Sequence[SwapOutcome]) -> str:
    """Which letter is which variant."""
    return ", ".join(
        f"{letter} {escape(outcome.variant.label)}" for letter, outcome in zip(LETTERS, outcomes, strict=False)
    )


def _small(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 or value == 0 else "<0.001"
