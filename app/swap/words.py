"""What an attribute swap found: in words, as tables of distances, as chains beside each other, and as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, cast

from markupsafe import Markup

from app.prompts.words import Message, finished_text
from app.shared.audits import FAMILY_NAMES, AuditSettings
from app.shared.errors import ServiceError
from app.shared.exchanges import AS_TYPED, Variant
from app.shared.format import MINUS, count, percentage, plural, probability, quoted, shown_token
from app.shared.markup import laid_out
from app.shared.policies import info_of, parameters_line, policy_name
from app.shared.settings_json import whole
from app.shared.step_words import shapes, spoken_state, token_marks
from app.swap.chart import LETTERS, drawn_tokens, swap_figure
from app.swap.types import (
    SwapChain,
    SwapControls,
    SwapDifference,
    SwapProgress,
    SwapRequest,
    SwapResult,
    SwapTargets,
)
from app.swap.variants import ComparedGroup, swap_offers
from coft_core.effects import ABOUT_ONCE
from coft_core.types import Certificate, Span, Step

READINGS = {
    "factual": ("Visible", "the model alone, reading the prompt as it is", "as typed {}"),
    "fused": ("After fusion", "what the policy makes of the visible and the masked reading", "after fusion {}"),
    "drawn": ("Drawn from", "what is left of it on the certified tokens, which the policy draws from",
              "among the certified tokens {}"),
    "masked": ("Masked", "the model reading the masked prompt", "masked {}"),
}  # fmt: skip


def reading(result: SwapResult, view: str) -> tuple[str, str, str]:
    """A view's name, what it is, and a distance in it as a part of a sentence, where ``{}`` stands for the distance."""
    if view == "fused" and not info_of(result.policy).fuses:
        name = policy_name(result.policy)
        return f"Under {name}", "the distribution that the method makes", f"under {name} {{}}"
    return READINGS[view]


def names_of(result: SwapResult) -> tuple[str, ...]:
    """The names of a result's views."""
    return tuple(reading(result, view)[0] for view in result.views)


PRONOUNS = ("she", "he", "they")

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
    pronouns = {name: item for item, name in named(targets.pronouns)}
    category = given["category"]
    return SwapRequest(
        prompt=str(given["prompt"]),
        settings=settings,
        spans=spans,
        pronouns=tuple(name for name in PRONOUNS if name in given["pronouns"]) if targets.has_pronoun else (),
        groups=tuple(str(item["text"]).strip() for item in groups),
        group_pronouns=tuple(str(item["with"]) or None if targets.has_pronoun else None for item in groups),
        category=str(category) if category in targets.families else next(iter(targets.families), None),
        targets=tuple(span.start for span, name in named(targets.spans) if name not in left),
        roles=tuple((pronouns[name].start, str(role)) for name, role in roles.items() if name in pronouns),
        include_original=bool(given["original"]),
        max_new_tokens=_from_one(given, "length", "length of the texts"),
        answer_step=_from_one(given, "answer", "compared token") - 1,
        members=tuple((str(name), words_in(text)) for name, text in given.get("members", {}).items()),
        paraphrases=tuple(filter(None, (str(text).strip() for text in given.get("paraphrases", ())))),
    )


def words_in(text: str) -> tuple[str, ...]:
    """Words that commas separate."""
    return tuple(dict.fromkeys(filter(None, (" ".join(word.split()) for word in text.split(",")))))


def _from_one(given: Mapping[str, Any], name: str, called: str) -> int:
    if (number := whole(given, name, called, usual=1)) < 1:
        raise ServiceError(f"The {called} is a whole number from 1; correct it.")
    return number


def named(items: Sequence[Any]) -> list[tuple[Any, str]]:
    """Items of a prompt with names that outlive edits elsewhere in it: the text, and which of those with this text."""
    seen: dict[str, int] = {}
    names = []
    for item in items:
        number = seen[item.text] = seen.get(item.text, 0) + 1
        names.append((item, f"{item.text}#{number}"))
    return names


def form_message(
    targets: SwapTargets,
    category: str | None,
    variants: Sequence[Variant] | str,
    groups: Sequence[ComparedGroup],
) -> Message:
    """What can be chosen, and the variants as chosen, or why there are none."""
    refused = isinstance(variants, str)
    # Suggestions resemble the first word of the family that groups replace.
    words = (item.text for item in targets.spans if item.category == category and not item.pronoun)
    usual, further = swap_offers(category or "", next(words, ""))
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
        "usual": list(usual),
        "further": list(further),
        "variants": "" if refused else variants_html(variants),
        "lists": [{"name": group.name, "words": list(group.words)} for group in groups],
        "count": 0 if refused else len(variants),
        "refusal": next_step(targets, variants) if isinstance(variants, str) else "",
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


def result_message(result: SwapResult) -> Message:
    """Everything that the page shows of a comparison."""
    names, shown, token = names_of(result), len(drawn_tokens(result)), f"token {result.answer_step + 1}"
    figure = swap_figure(result, names).to_plotly_json()
    which = f"The {shown} of {len(result.tokens)} candidates" if shown < len(result.tokens) else "The candidates"
    return {
        "kind": "result",
        "number": result.number,
        "answer": result.answer_step + 1,
        "most": result.common_steps,
        "head": head_html(result),
        "body": body_html(result),
        "figure": {name: part for name, part in figure.items() if name in ("data", "layout")},
        "caption": f"{which} for {token}, those that differ most first",
        "spoken": f"Probability of the candidates for {token} in {plural(len(result.outcomes), 'variant')}, one panel "
        f"each for {', '.join(names).lower()}. The numbers are in a table below.",
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
    return f"Replacing {_replaced(a)} with {_replaced(b)} {effect}{'; ' if parts else ''}{parts}."


@dataclass(frozen=True, slots=True)
class Finding:
    """A comparison with its controls: a sentence with its emphasized ``factor``, the reasons, and bars."""

    sentence: str
    lead: str
    factor: str = ""
    bars: tuple[tuple[str, float, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The sentence and what it rests on."""
        return f"{self.sentence} {self.lead}"


SUPPORTED = {
    "group": "The groups differ more than if their words were dealt at random, and more than wordings of one prompt.",
    "word": "It may be the words, not the group: words dealt to the groups at random often differ as much.",
    "wording": "The difference between the groups is no larger than between wordings of one prompt.",
    "no control": "No control for words: a group has only one.",
}
"""What a difference is supported as."""


def finding(result: SwapResult) -> Finding:
    """The largest difference between groups, beside that between words for one group and between wordings."""
    controls = result.controls
    if controls is None:
        return Finding("No control.", "This comparison was made without comparable words, so no difference is tested.")
    if (item := controls.headline) is None:
        return Finding("No control.", f"All variants are words for one group, {controls.groups[0].name}.")
    found, state, p_value = item.factual, controls.state(item), controls.p_value(item)
    groups = [controls.groups[place] for place in (item.first, item.second)]
    ends = [found.low, found.high]
    if found.difference < 0:
        groups, ends = groups[::-1], [-found.high, -found.low]
    (first, a), (second, b) = ((group.name, mean(row.factual[0] for row in group.members)) for group in groups)
    token, shares = quoted(controls.tokens[0]), f"{moved(a)} against {moved(b)}"
    factor = f"{a / b:.2g} times as likely" if state == "group" and b >= LEAST and a / b >= ABOUT_ONCE else ""
    sentence = f"{token} for {first} and for {second}: {shares}."
    if factor:
        sentence = f"{token} is {factor} for {first} as for {second}: {shares}."
    between, wordings = points(abs(found.difference)), points(controls.between_wordings(item))
    beside = f"wordings of one prompt by up to {wordings}."
    rests = f"The groups differ by {between}, {beside}"
    if p_value is not None:
        rests = (
            f"The groups differ by {between} (95 % interval {points(ends[0], '')} to {points(ends[1], '')}), words for "
            f"one group by up to {points(found.within)} (p = {p_value:.2g}), and {beside}"
        )
    bars = [(f"Between {first} and {second}", abs(found.difference), "hot" if state == "group" else "")]
    bars += [("Within a group, at most", found.within, "")] if p_value is not None else []
    bars += [("Between wordings, at most", controls.between_wordings(item), "")]
    bars += [(f"Between the groups, with {policy_name(result.policy)}", abs(item.policy.difference), "guided")]
    return Finding(sentence, f"{SUPPORTED[state]} {rests}", factor, tuple(bars), tuple(_control_notes(result, item)))


LEAST = 0.005
"""A factor over a smaller probability than this says nothing."""


def points(share: float, unit: str = "point") -> str:
    """A difference of probabilities in whole points; an end of an interval, which has no unit, with one place."""
    return plural(round(100 * share), unit) if unit else f"{100 * share:.1f}".replace("-", MINUS)


def _control_notes(result: SwapResult, item: SwapDifference) -> Iterator[str]:
    """How the numbers of a finding were computed."""
    controls, found = cast(SwapControls, result.controls), item.factual
    groups = [controls.groups[place] for place in (item.first, item.second)]
    yield "A group is the mean of its words. The token is the one that varies most over all words of all groups."
    if item in controls.tested:
        number = sum(len(group.members) for group in groups)
        ways = f"all {count(found.ways)} ways" if found.exact else f"{count(found.ways)} ways, drawn with one seed,"
        extreme = round(found.p_value * (found.ways + (not found.exact))) - (not found.exact)
        times = len(controls.tested)
        yield f"p: of {ways} to deal the {number} words to the two groups, {count(extreme)} give such a difference." + (
            f" It is multiplied by {times}, the number of pairs of groups, and intervals are widened."
            if times > 1
            else ""
        )
    for group in groups:
        if len(group.members) < FEW:
            yield f"The list of {group.name} has {plural(len(group.members), 'word')} only; {FEW} or more say more."
    if result.answer_step:
        yield f"Everything is read after the same {plural(result.answer_step, 'token')}: those of the first variant."


FEW = 8
"""Words that a group should have."""


def control_html(result: SwapResult) -> Markup:
    """The finding with its bars, and every group with its words."""
    return laid_out(
        "swap/control.html", finding=finding(result), result=result, policy=policy_name(result.policy), moved=moved,
        points=points, mean=mean,
    )  # fmt: skip


def _replaced(label: str) -> str:
    """A variant's label in a sentence: the words, where it says what was typed there."""
    typed = label.removeprefix(f"{AS_TYPED} (")
    return "the typed words" if label == AS_TYPED else quoted(label if typed == label else typed.removesuffix(")"))


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
    return laid_out(
        "swap/head.html",
        lead=lead(result),
        result=result,
        reading=reading,
        furthest=furthest,
        distance=distance,
        control=control_html(result),
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
        policy_name=policy_name,
        parameters=parameters_line,
        claim=chain_claim,
        finished=finished_text,
        token=token_html,
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
