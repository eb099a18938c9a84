"""What an attribute swap found: in words, as tables of distances, as chains beside each other, and as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from app.shared.audits import FAMILY_NAMES, AuditSettings
from app.shared.charts import FONT_SIZE, MONO, plain_layout
from app.shared.errors import ServiceError
from app.shared.exchanges import Variant
from app.shared.format import percentage, plural, probability, quoted, shown_token
from app.shared.json import span_json
from app.shared.markup import laid_out
from app.shared.policies import info_of, parameters_line, policy_name
from app.shared.prompt_words import Message, finished_text
from app.shared.settings_json import whole
from app.shared.step_words import shapes, spoken_state, token_marks
from app.swap.types import (
    SwapChain,
    SwapOutcome,
    SwapProgress,
    SwapRequest,
    SwapResult,
    SwapTargets,
    SwapToken,
)
from coft_core.step_numbers import step_numbers
from coft_core.types import Certificate, Span, Step


def swap_json(result: SwapResult) -> dict[str, Any]:
    """A comparison: variants with their chains, candidates and distances of the compared token, and notes."""
    labels = [outcome.variant.label for outcome in result.outcomes]
    return {
        "step": result.answer_step + 1,
        "views": list(result.views),
        "variants": [_outcome(outcome) for outcome in result.outcomes],
        "tokens": [
            {"token_id": token.token_id, "token": token.token,
             "probabilities": {view: list(values) for view, values in token.probabilities.items()}}
            for token in result.tokens
        ],
        "distances": [
            {"first": labels[gap.first], "second": labels[gap.second], "total_variation": dict(gap.distances)}
            for gap in result.gaps
        ],
        "largest": {view: result.largest(view) for view in result.views},
        "mean": {view: result.mean(view) for view in result.views},
        "notes": list(result.notes),
    }  # fmt: skip


def _outcome(outcome: SwapOutcome) -> dict[str, Any]:
    variant = outcome.variant
    return {
        "label": variant.label,
        "prompt": variant.prompt,
        "spans": [span_json(span) for span in variant.spans],
        "replacements": [asdict(change) for change in variant.replacements],
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


_READINGS = {
    "factual": ("Visible", "the model alone, reading the prompt as it is", "as typed {}"),
    "fused": ("After fusion", "what the policy makes of the visible and the masked reading", "after fusion {}"),
    "drawn": ("Drawn from", "what is left of it on the certified tokens, which the policy draws from",
              "among the certified tokens {}"),
    "masked": ("Masked", "the model reading the masked prompt", "masked {}"),
}  # fmt: skip


def policy_of(result: SwapResult) -> str:
    """The policy that is compared with vanilla decoding."""
    return result.outcomes[0].policy.start.settings.policy


def reading(result: SwapResult, view: str) -> tuple[str, str, str]:
    """A view's name, what it is, and a distance in it as a part of a sentence, where ``{}`` stands for the distance."""
    policy = policy_of(result)
    if view == "fused" and not info_of(policy).fuses:
        name = policy_name(policy)
        return f"Under {name}", "the distribution that the method makes", f"under {name} {{}}"
    return _READINGS[view]


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
    """The browser's form as a request; spans and pronouns are named as :func:`named` does."""
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
        max_new_tokens=_from_one(given, "length", "length of the chains"),
        answer_step=_from_one(given, "answer", "compared token") - 1,
    )


def named(items: Sequence[Any]) -> list[tuple[Any, str]]:
    """Items of a prompt with names that outlive edits elsewhere in it: the text, and which of those with this text."""
    seen: dict[str, int] = {}
    names = []
    for item in items:
        number = seen[item.text] = seen.get(item.text, 0) + 1
        names.append((item, f"{item.text}#{number}"))
    return names


def category_of(asked: object, targets: SwapTargets) -> str | None:
    """The family that groups replace: the asked-for one if the prompt has it, else its first."""
    return str(asked) if asked in targets.families else next(iter(targets.families), None)


def offered_for(targets: SwapTargets, category: str | None) -> str:
    """The words that suggestions should resemble: the first of the family that groups replace."""
    return next((item.text for item in targets.spans if item.category == category and not item.pronoun), "")


def form_message(
    targets: SwapTargets,
    category: str | None,
    offers: tuple[Sequence[str], Sequence[str]],
    variants: Sequence[Variant] | str,
) -> Message:
    """What can be chosen, and the variants as chosen, or why there are none."""
    refusal = next_step(targets, variants) if isinstance(variants, str) else ""
    listed = () if isinstance(variants, str) else variants
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
        "usual": list(offers[0]),
        "further": list(offers[1]),
        "variants": variants_html(listed) if listed else "",
        "count": len(listed),
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


def variants_html(variants: Sequence[Variant]) -> Markup:
    """The variants as text, with every replacement marked, and what should be checked in them."""
    return laid_out("swap/variants.html", variants=list(zip(LETTERS, variants, strict=False)), marked=marked_text)


def marked_text(variant: Variant) -> Markup:
    """A variant's text with every replacement marked, and what stood there for those who cannot see the mark."""
    pieces, cursor, shift = [], 0, 0
    for change in sorted(variant.replacements, key=lambda item: item.start):
        start = change.start + shift
        end = start + len(change.after)
        shift += len(change.after) - (change.end - change.start)
        said = f"{KINDS[change.kind]}: was “{change.before}”" + ("" if change.sure else ", to be checked")
        pieces.append((variant.prompt[cursor:start], change, variant.prompt[start:end], said))
        cursor = end
    return laid_out("swap/marked.html", pieces=pieces, rest=variant.prompt[cursor:])


def _from_one(given: Mapping[str, Any], name: str, called: str) -> int:
    if (number := whole(given, name, called, usual=1)) < 1:
        raise ServiceError(f"The {called} is a whole number from 1; correct it.")
    return number


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
    figure = _swap_frame(len(tokens))
    most = max(map(_most, tokens), default=1.0)
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
            text=f"<b>{reading(result, view)[0]}</b>",
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
    likely = [token for token in result.tokens if _most(token) >= LEAST]
    return tuple(likely[:SHOWN] or result.tokens[:SHOWN])


def _most(token: SwapToken) -> float:
    return max(value for values in token.probabilities.values() for value in values)


def _swap_frame(rows: int) -> go.Figure:
    """The chart without its marks, for so many candidates."""
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
            x=[token.probabilities[view][number] for token in tokens],
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
        values = token.probabilities[view]
        x += [min(values), max(values), None]
        y += [row, row, None]
    return go.Scatter(x=x, y=y, xaxis=axis, mode="lines", line={"width": 1.2}, hoverinfo="skip", showlegend=False)


def _short(name: str, most: int = 12) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def result_message(result: SwapResult) -> Message:
    """Everything that the page shows of a comparison."""
    figure = swap_figure(result).to_plotly_json()
    return {
        "kind": "result",
        "number": result.number,
        "answer": result.answer_step + 1,
        "most": result.common_steps,
        "lead": lead(result),
        "head": head_html(result),
        "body": body_html(result),
        "figure": {name: part for name, part in figure.items() if name in ("data", "layout")},
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
    """The comparison in one sentence: how much of the compared token's probability the swap moves, in each view."""
    first, *rest = result.views
    a, b = furthest(result, first)
    token, largest = f"token {result.answer_step + 1}", result.largest(first)
    effect = f"moves {moved(largest)} of the probability of {token}"
    if largest < HARDLY:
        effect = f"hardly changes {token}: {moved(largest)} of its probability moves"
    parts = ", ".join(reading(result, view)[2].format(moved(result.largest(view))) for view in rest)
    return f"Swapping {_swapped(a)} for {_swapped(b)} {effect}{'; ' if parts else ''}{parts}."


def _swapped(label: str) -> str:
    """A variant's label in a sentence: the words, where it says what was typed there."""
    typed = label.removeprefix("as typed (")
    return "what was typed" if label == "as typed" else quoted(label if typed == label else typed.removesuffix(")"))


HARDLY = 0.05
"""Total variation under which a swap hardly changes a token."""


def moved(value: float) -> str:
    """A total variation as the share of probability that moves, in whole percent."""
    rounded = round(value, 2)
    return "<1\N{NO-BREAK SPACE}%" if rounded == 0 and value >= 1e-6 else percentage(rounded)


def furthest(result: SwapResult, view: str) -> tuple[str, str]:
    """Labels of the two variants that are furthest apart in a view."""
    gap = max(result.gaps, key=lambda item: item.distances[view])
    return result.outcomes[gap.first].variant.label, result.outcomes[gap.second].variant.label


def distance(value: float) -> str:
    """A total variation with two places; one that is zero but for rounding errors reads as 0.00."""
    return "0.00" if value < 1e-6 else probability(value)


def head_html(result: SwapResult) -> Markup:
    """The sentence, and largest and mean distance by view."""
    rows = [
        (*reading(result, view)[:2], largest, " and ".join(furthest(result, view)) if largest >= 1e-6 else "–",
         result.mean(view))
        for view in result.views
        for largest in (result.largest(view),)
    ]  # fmt: skip
    return laid_out("swap/head.html", lead=lead(result), rows=rows, distance=distance)


def figure_caption(result: SwapResult) -> str:
    """What the chart shows, and what it leaves to the table."""
    shown, of_all = len(drawn_tokens(result)), len(result.tokens)
    which = f"The {shown} of {of_all} candidates" if shown < of_all else "The candidates"
    return f"{which} for token {result.answer_step + 1}, those that differ most first"


def figure_spoken(result: SwapResult) -> str:
    """The chart for a screen reader."""
    views = ", ".join(reading(result, view)[0].lower() for view in result.views)
    return (
        f"Probability of the candidates for token {result.answer_step + 1} in {plural(len(result.outcomes), 'variant')}"
        f", one panel each for {views}. The numbers are in a table below."
    )


def body_html(result: SwapResult) -> Markup:
    """Distances of all pairs, each variant's chains under vanilla decoding and under the policy, and all numbers."""
    apart = {(gap.first, gap.second): gap.distances for gap in result.gaps}
    return laid_out(
        "swap/found.html",
        result=result,
        variants=list(zip(LETTERS, result.outcomes, strict=False)),
        readings=[(view, *reading(result, view)[:2]) for view in result.views],
        apart=apart | {(second, first): values for (first, second), values in apart.items()},
        distance=distance,
        policy=policy_of(result),
        policy_name=policy_name,
        parameters=parameters_line,
        claim=chain_claim,
        finished=finished_text,
        token=token_html,
        small=_small,
    )


def chain_claim(chain: SwapChain, alone: bool) -> str:
    """What may be said of a chain's tokens."""
    total = plural(len(chain.steps), "token")
    if alone:
        return f"{total}, nothing is certified"
    if not Certificate.read(chain.certificate).certified:
        return f"{total}, {chain.certificate}"
    return f"{sum(step.certified for step in chain.steps)} of {total} certified"


def token_html(step: Step, answer_step: int, alone: bool) -> Markup:
    """A token with its marks; vanilla decoding has none, since it certifies nothing."""
    said = f"step {step.index + 1}" if alone else spoken_state(step)
    classes = ["bare"] if alone else shapes(step)
    if step.index > 0 and not step.token[:1].isspace():
        classes.append("glue")
    if step.index == answer_step:
        classes.append("now")
        said += ", compared"
    marks = () if alone else token_marks(step)
    return laid_out("swap/token.html", classes=" ".join(classes), said=said, marks=marks, word=shown_token(step.token))


def _small(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 or value == 0 else "<0.001"
