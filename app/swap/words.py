"""What an attribute swap found: in words, as tables of distances, as chains beside each other, and as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from app.shared.audits import FAMILY_NAMES, AuditSettings
from app.shared.charts import FONT_SIZE, MONO, plain_layout
from app.shared.errors import ServiceError
from app.shared.json import span_json, step_numbers
from app.shared.markup import icon, table
from app.shared.policies import info_of, parameters_line, policy_name
from app.shared.prompt_words import Message, finished_text
from app.shared.step_words import plural, probability, quoted, shapes, shown_token, spoken_state, token_marks
from app.swap.types import (
    SwapChain,
    SwapOffer,
    SwapOutcome,
    SwapProgress,
    SwapRequest,
    SwapResult,
    SwapTargets,
    SwapToken,
    SwapVariant,
)
from coft_core.types import Certificate, Span, Step


def swap_json(result: SwapResult) -> dict[str, Any]:
    """A comparison: variants with their chains, candidates and distances of the compared token, and notes."""
    labels = [outcome.variant.label for outcome in result.outcomes]
    return {
        "step": result.answer_step + 1,
        "views": list(result.views),
        "variants": [_outcome(outcome) for outcome in result.outcomes],
        "tokens": [
            {
                "token_id": token.token_id,
                "token": token.token,
                "probabilities": {view: list(token.of(view)) for view in result.views},
            }
            for token in result.tokens
        ],
        "distances": [
            {"first": labels[gap.first], "second": labels[gap.second], "total_variation": dict(gap.distances)}
            for gap in result.gaps
        ],
        "largest": {view: result.largest(view) for view in result.views},
        "mean": {view: result.mean(view) for view in result.views},
        "notes": list(result.notes),
    }


def _outcome(outcome: SwapOutcome) -> dict[str, Any]:
    variant = outcome.variant
    return {
        "label": variant.label,
        "prompt": variant.prompt,
        "spans": [span_json(span) for span in variant.spans],
        "replacements": [
            {
                "start": change.start,
                "end": change.end,
                "before": change.before,
                "after": change.after,
                "kind": change.kind,
                "role": change.role,
                "sure": change.sure,
            }
            for change in variant.replacements
        ],
        "notes": list(variant.notes),
        "masked_like_first": outcome.masked_like_first,
        "vanilla": _chain_json(outcome.vanilla),
        "policy": _chain_json(outcome.policy),
    }


def _chain_json(chain: SwapChain) -> dict[str, Any]:
    return {
        "text": chain.text,
        "finished": chain.finished,
        "certificate": chain.certificate,
        "steps": [step_numbers(step) for step in chain.steps],
    }


_NAMES = {
    "factual": ("Visible", "the model alone, reading the prompt as it stands"),
    "fused": ("After fusion", "what the policy makes of the visible and the masked reading"),
    "drawn": ("Drawn from", "what is left of it on the certified tokens, which the policy draws from"),
    "masked": ("Masked", "the model reading the masked prompt"),
}
_SENTENCES = {
    "factual": "Visible: {}",
    "fused": "after fusion {}",
    "drawn": "among the certified tokens {}",
    "masked": "masked {}",
}


def policy_of(result: SwapResult) -> str:
    """The policy that is compared with vanilla decoding."""
    return result.outcomes[0].policy.start.settings.policy


def view_name(result: SwapResult, view: str) -> tuple[str, str]:
    """A reading's name, and what it is."""
    policy = policy_of(result)
    if view == "fused" and not info_of(policy).fuses:
        return f"Under {policy_name(policy)}", "the distribution that the method makes"
    return _NAMES[view]


def view_sentence(result: SwapResult, view: str) -> str:
    """A distance in a reading, as a part of the result's sentence; ``{}`` stands for the distance."""
    policy = policy_of(result)
    if view == "fused" and not info_of(policy).fuses:
        return f"under {policy_name(policy)} {{}}"
    return _SENTENCES[view]


PRONOUNS = ("she", "he", "they")
LETTERS = "ABCDEFGHIJKL"
"""What variants are called in charts and tables, in their order."""

ROLE_NAMES = {
    "subject": "a subject: “she saw it”",
    "object": "an object: “it saw her”",
    "possessive": "before a noun: “her book”",
    "possessive_pronoun": "without a noun: “it is his”",
    "reflexive": "reflexive: “saw herself”",
}
KINDS = {
    "span": "replaced",
    "pronoun": "pronoun replaced",
    "verb": "verb that must agree",
    "article": "article that must agree",
}


def swap_request(
    given: Mapping[str, Any], spans: tuple[Span, ...], targets: SwapTargets, settings: AuditSettings
) -> SwapRequest:
    """The browser's form as a request; spans and pronouns are named as :func:`named` does.

    Args:
        given: ``prompt``, ``pronouns``, ``groups`` (each with ``text`` and ``with``), ``category``, ``left`` (spans
            that are left as they are), ``roles`` by pronoun, ``original``, and once it runs ``length`` and ``answer``
            (counted from 1).
        spans: The prompt's spans.
        targets: What of it can be replaced.
        settings: Settings of the policy.

    Raises:
        ServiceError: A number is missing.
    """
    left, roles = set(given["left"]), dict(given["roles"])
    groups = [item for item in given["groups"] if str(item["text"]).strip()]
    starts = tuple(span.start for span, name in named(targets.spans) if name not in left)
    pronouns = {name: item for item, name in named(targets.pronouns)}
    return SwapRequest(
        prompt=str(given["prompt"]),
        settings=settings,
        spans=spans,
        pronouns=tuple(name for name in PRONOUNS if name in given["pronouns"]) if targets.has_pronoun else (),
        groups=tuple(str(item["text"]).strip() for item in groups),
        group_pronouns=tuple(str(item["with"]) or None if targets.has_pronoun else None for item in groups),
        category=category_of(given["category"], targets),
        targets=starts,
        roles=tuple((pronouns[name].start, str(role)) for name, role in roles.items() if name in pronouns),
        include_original=bool(given["original"]),
        max_new_tokens=_whole(given.get("length", 1), "length of the chains"),
        answer_step=_whole(given.get("answer", 1), "compared token") - 1,
    )


def named(items: Sequence[Any]) -> list[tuple[Any, str]]:
    """Items of a prompt with names that outlive edits elsewhere in it: the text, and which of those with this text."""
    seen: dict[str, int] = {}
    found = []
    for item in items:
        number = seen[item.text] = seen.get(item.text, 0) + 1
        found.append((item, f"{item.text}#{number}"))
    return found


def category_of(asked: object, targets: SwapTargets) -> str | None:
    """The family that groups replace: the asked-for one if the prompt has it, else its first."""
    return str(asked) if asked in targets.families else next(iter(targets.families), None)


def offered_for(targets: SwapTargets, category: str | None) -> str:
    """The words that suggestions should resemble: the first of the family that groups replace."""
    return next((item.text for item in targets.spans if item.category == category and not item.pronoun), "")


def form_message(
    targets: SwapTargets,
    category: str | None,
    offers: Sequence[SwapOffer],
    variants: Sequence[SwapVariant] | str,
) -> Message:
    """What can be chosen, and the variants as chosen, or why there are none."""
    refusal = next_step(targets, variants) if isinstance(variants, str) else ""
    made = () if isinstance(variants, str) else variants
    return {
        "kind": "look",
        "targets": [
            {"name": name, "text": item.text, "family": FAMILY_NAMES.get(item.category, item.category),
             "key": item.category, "at": item.start + 1, "pronoun": item.pronoun}
            for item, name in named(targets.spans)
        ],
        "hasPronoun": targets.has_pronoun,
        "families": [[key, FAMILY_NAMES.get(key, key)] for key in targets.families],
        "category": category or "",
        "pronouns": [
            {"name": name, "text": item.text, "at": item.start + 1, "role": item.role, "sure": item.sure,
             "roles": [[role, ROLE_NAMES[role]] for role in item.roles]}
            for item, name in named(targets.pronouns)
            if len(item.roles) > 1
        ],
        "offers": [{"detail": offer.detail, "terms": list(offer.terms)} for offer in offers],
        "variants": variants_html(made) if made else "",
        "count": len(made),
        "refusal": refusal,
    }  # fmt: skip


def next_step(targets: SwapTargets, refusal: str) -> str:
    """What to do next where there are no variants yet: a hint while nothing is chosen, else the refusal."""
    if not targets.spans:
        return "Nothing in this prompt is masked: select words in it and mark them, then choose what takes their place."
    if not refusal.startswith("There are not two"):
        return refusal
    words = [f"“{item.text}”" for item in targets.spans if not item.pronoun]
    if words and not targets.has_pronoun:
        return f"Choose at least one group to put in place of {' and '.join(dict.fromkeys(words))}."
    return "Choose pronouns or groups to put in place, so that there are two different variants."


def variants_html(variants: Sequence[SwapVariant]) -> str:
    """The variants as text, with every replacement marked, and what should be checked in them."""
    rows = "".join(_variant(letter, item) for letter, item in zip(LETTERS, variants, strict=False))
    return f'<ol class="variants">{rows}</ol>'


def variant_name(letter: str, label: str) -> str:
    """A variant's letter and label, as markup."""
    return f'<span class="letter">{letter}</span> {escape(label)}'


def _variant(letter: str, variant: SwapVariant) -> str:
    changes = plural(len(variant.replacements), "change") if variant.replacements else "nothing changed"
    notes = "".join(f"<li>{escape(note)}</li>" for note in variant.notes)
    return (
        f'<li><p class="who">{variant_name(letter, variant.label)}<span class="hint tnum">{changes}</span></p>'
        f'<p class="text">{marked_text(variant)}</p>{f"<ul class=check>{notes}</ul>" if notes else ""}</li>'
    )


def marked_text(variant: SwapVariant) -> str:
    """A variant's text with every replacement marked, and what stood there for those who cannot see the mark."""
    pieces, cursor, shift = [], 0, 0
    for change in sorted(variant.replacements, key=lambda item: item.start):
        start = change.start + shift
        end = start + len(change.after)
        shift += len(change.after) - (change.end - change.start)
        doubt = "" if change.sure else " unsure"
        asks = "" if change.sure else '<span class="doubt" aria-hidden="true">?</span>'
        said = f"{KINDS[change.kind]}: was “{change.before}”" + ("" if change.sure else ", to be checked")
        pieces.append(escape(variant.prompt[cursor:start]))
        pieces.append(
            f'<mark class="swapped {change.kind}{doubt}" title="{escape(said)}">{escape(variant.prompt[start:end])}'
            f'{asks}<span class="vh"> ({escape(said)})</span></mark>'
        )
        cursor = end
    return "".join(pieces) + escape(variant.prompt[cursor:])


def _whole(given: object, name: str) -> int:
    text = str(given).strip()
    if not text.isdigit() or int(text) < 1:
        raise ServiceError(f"The {name} is a whole number from 1; correct it.")
    return int(text)


SYMBOLS = (
    "circle", "diamond-open", "triangle-up", "square-open", "cross", "circle-open", "diamond", "triangle-up-open",
    "square", "x-open", "star", "hexagon-open",
)  # fmt: skip
SHOWN = 10
"""Candidates that are drawn: those that differ most in the visible reading."""

LEAST = 0.005
"""Candidates that are less likely than this everywhere stand in the table alone."""

ROW_HEIGHT = 26
TITLE_HEIGHT = 24
LONGEST_NAME = 28
MARGIN = {"l": 96, "r": 10, "t": 66, "b": 40}
GAP = 0.03
SLOTS = (1, 3, 2, 0)
"""Places in the template's five lines and markers: text, accent, second text, caution."""
BLOCK = 5
RANGES = 2
"""Place of the lines that join a candidate's marks."""


def swap_figure(result: SwapResult) -> go.Figure:
    """A candidate's probability in every variant, one panel a reading on a common scale."""
    tokens = drawn_tokens(result)
    figure = empty_swap_figure(len(tokens))
    most = max((value for token in tokens for view in result.views for value in token.of(view)), default=1.0)
    width = (1 - GAP * (len(result.views) - 1)) / max(1, len(result.views))
    for panel, view in enumerate(result.views):
        axis = "" if panel == 0 else str(panel + 1)
        left = panel * (width + GAP)
        figure.update_layout(
            {
                f"xaxis{axis}": {
                    "domain": [left, left + width], "range": [-0.03 * most, most * 1.08], "nticks": 4, "anchor": "y",
                    "fixedrange": True, "showline": True, "tickformat": ".2~f", "zeroline": False,
                }
            }
        )  # fmt: skip
        figure.add_annotation(
            x=left, xref="paper", xanchor="left", y=1, yref="paper", yanchor="bottom", yshift=4, showarrow=False,
            text=f"<b>{view_name(result, view)[0]}</b>",
        )  # fmt: skip
        _panel(figure, result, tokens, view, f"x{axis}", first=panel == 0)
    names = [_short(shown_token(token.token)) for token in tokens]
    figure.update_yaxes(tickmode="array", tickvals=list(range(len(tokens))), ticktext=names)
    figure.add_annotation(
        x=0.5, xref="paper", y=0, yref="paper", yshift=-24, yanchor="top", showarrow=False,
        text=f"probability of token {result.answer_step + 1}",
    )  # fmt: skip
    return figure


def drawn_tokens(result: SwapResult) -> tuple[SwapToken, ...]:
    """The candidates that the chart shows: those that differ most, and of them only what is visible on its scale."""
    likely = [t for t in result.tokens if max(value for view in result.views for value in t.of(view)) >= LEAST]
    return tuple(likely[:SHOWN] or result.tokens[:SHOWN])


def empty_swap_figure(rows: int = 3) -> go.Figure:
    """The chart before there is a comparison."""
    shown = max(3, rows)
    figure = go.Figure(layout=plain_layout(MARGIN["t"] + MARGIN["b"] + ROW_HEIGHT * shown, MARGIN))
    figure.update_layout(
        showlegend=True,
        legend={
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1 + TITLE_HEIGHT / (ROW_HEIGHT * shown),
            "yanchor": "bottom", "itemclick": False, "itemdoubleclick": False, "bgcolor": "rgba(0,0,0,0)",
        },
        yaxis={
            "autorange": False, "range": [shown - 0.4, -0.6], "fixedrange": True, "showgrid": True, "zeroline": False,
            "tickfont": {"family": MONO, "size": FONT_SIZE},
        },
    )  # fmt: skip
    return figure


def _panel(
    figure: go.Figure, result: SwapResult, tokens: tuple[SwapToken, ...], view: str, axis: str, first: bool
) -> None:
    """The lines and marks of one panel, at their places in the template."""
    traces: dict[int, go.Scatter] = {RANGES: _ranges(tokens, view, axis)}
    for number, outcome in enumerate(result.outcomes):
        name = f"{LETTERS[number]}  {_short(outcome.variant.label, LONGEST_NAME)}"
        place = BLOCK * (1 + number // len(SLOTS)) + SLOTS[number % len(SLOTS)]
        traces[place] = go.Scatter(
            x=[token.of(view)[number] for token in tokens],
            y=list(range(len(tokens))),
            xaxis=axis,
            mode="markers",
            name=name,
            legendgroup=name,
            legendrank=number + 1,
            showlegend=first,
            marker={"symbol": SYMBOLS[number], "size": 9, "line": {"width": 1.6}},
            hovertemplate=f"{outcome.variant.label} %{{x:.4f}}<extra></extra>",
        )
    total = BLOCK * (2 + (len(result.outcomes) - 1) // len(SLOTS))
    for place in range(total):
        figure.add_trace(traces.get(place) or go.Scatter(x=[], y=[], hoverinfo="skip", showlegend=False))


def _ranges(tokens: tuple[SwapToken, ...], view: str, axis: str) -> go.Scatter:
    """A thin line from each candidate's lowest to its highest mark."""
    x: list[float | None] = []
    y: list[float | None] = []
    for row, token in enumerate(tokens):
        values = token.of(view)
        x += [min(values), max(values), None]
        y += [row, row, None]
    return go.Scatter(x=x, y=y, xaxis=axis, mode="lines", line={"width": 1.2}, hoverinfo="skip", showlegend=False)


def _short(name: str, most: int = 12) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


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
    if not Certificate.read(chain.certificate).certified:
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
