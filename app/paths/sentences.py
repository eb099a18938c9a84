"""What is said of sampled paths, in sentences: the result first, then where the worlds part, then the reservations."""

from __future__ import annotations

from app.paths.runs import PARTED
from app.paths.types import Analysis, Apart, PathsView, WorldPaths
from app.shared.format import count, plural, quoted
from app.shared.kept_controls import step_said
from coft_core.conformal.informative import BY_CONSTRUCTION
from coft_core.paths.parting import LEAST_VISITS, Parting
from coft_core.paths.question import Comparison, ShareEstimate

MOST_NAMED = 30
"""Characters of a question's words in a sentence."""

NO_CONTROL = "No control: nothing was compared with the marked words, so that chance among words is not ruled out."

STATED = {"cancelled": "was cancelled", "interrupted": "was interrupted", "failed": "failed", "running": "is at work"}


def result_sentences(analysis: Analysis) -> list[str]:
    """The run's result: its question's answer where it has one, else where its worlds part."""
    first = f"“{analysis.labels[0]}”"
    if analysis.comparisons:
        return [_compared(analysis, item) for item in analysis.comparisons]
    if analysis.estimates:
        (only,) = analysis.estimates
        scored = plural(only.yes + only.no, "scored path")
        return [f"{first} {percent(only)} {called(analysis.view)} {interval(only)} of {scored}."]
    if not analysis.apart:
        return [f"{plural(analysis.view.drawn, 'path')} {first}."]
    return [parting_sentence(analysis, apart) for apart in analysis.apart]


def _compared(analysis: Analysis, item: Comparison) -> str:
    one, other, bet = analysis.estimates[item.first], analysis.estimates[item.second], item.bet
    first, second = (f"“{analysis.labels[world]}”" for world in (item.first, item.second))
    difference = analysis.difference(item)
    if not bet.pairs or difference is None:
        return f"{first} and {second}: no path of one of them is scored, so nothing is said."
    return (
        f"{first} {percent(one)} {called(analysis.view)}, {second} {percent(other)}: difference {points(difference)} "
        f"points [{points(bet.low)}, {points(bet.high)}], {decided_text(analysis.view, item)}."
    )


def parting_sentence(analysis: Analysis, apart: Apart) -> str:
    """Where another world first parts from the first one."""
    found = first_parting(analysis, apart)
    names = f"“{analysis.labels[0]}” and “{analysis.labels[apart.world]}”"
    if found is None:
        tested = plural(len(apart.partings), "tested beginning")
        return f"{names}: no parting was found behind {tested}; each has at least {LEAST_VISITS} paths of both."
    text = analysis.beginning(found.node)
    behind = f"behind {quoted(text)}" if text else "at the first token"
    return f"{names} part {behind}: total variation {distance(found)}, {found.difference.by_chance:.2f} by chance."


def twins_sentence(apart: Apart) -> str:
    """How many twins part and at which token most do; empty where worlds were drawn independently."""
    parted = apart.parted_at
    if not parted:
        return f"None of {plural(len(apart.twins), 'twin')} parts." if apart.twins else ""
    ((token, _),) = parted.most_common(1)
    verb = "parts" if parted.total() == 1 else "part"
    return f"Of {plural(len(apart.twins), 'twin')}, {count(parted.total())} {verb}, most at token {token}."


def first_parting(analysis: Analysis, apart: Apart) -> Parting | None:
    """The parting of the shortest beginning, and of those the one that most paths have."""
    found = [item for item in apart.partings if item.adjusted <= PARTED]
    return min(found, key=lambda item: (analysis.tree.nodes[item.node].depth, -sum(item.visits)), default=None)


def distance(item: Parting) -> str:
    """A parting's total variation with its interval."""
    return f"{item.difference.distance:.2f} [{item.difference.low:.2f}, {item.difference.high:.2f}]"


def reservations(analysis: Analysis) -> list[str]:
    """What must be said with the result."""
    said: list[str] = []
    view = analysis.view
    if view.status != "done":
        stated = STATED.get(view.status, view.status)
        said.append(f"This run {stated} after {view.drawn} of {view.request.paths} paths.")
    for item in view.worlds:
        if item.unended:
            said.append(
                f"The thinking of {count(item.unended)} of {plural(len(item.paths), 'path')} “{item.world.label}” did "
                f"not end within {plural(item.world.settings.max_new_tokens, 'token')}: they have no answer"
                f"{' and are in no share' if view.asked else ''}."
            )
    if any(item.thinks for item in view.worlds) and view.asked:
        said.append("The question is only asked of the answers, not of the thinking before them.")
    for item, found in zip(view.worlds, analysis.estimates, strict=False):
        if neither := found.unscored - item.unended:
            said.append(f"{plural(neither, 'path')} “{item.world.label}” answered neither way: in no share.")
    if analysis.comparisons:
        said.append(
            f"The interval of a difference and its decision hold at all times at once, at risk {view.request.alpha:g} "
            "for all differences together (a betting test, Ville’s inequality). The shares’ own intervals are exact "
            "for a number of paths fixed beforehand; where sampling stopped at the decision, they are a little too "
            "narrow."
        )
    moved = "" if view.controls is None else step_said(view.controls, 0)
    said.append(f"What the marked words move at the first token: {moved}" if moved else NO_CONTROL)
    for item in view.worlds:
        said += [f"“{item.world.label}”: {note}" for note in (*item.world.notes, *item.warnings)]
    if any(item.has_thresholds for item in view.worlds):
        said.append(BY_CONSTRUCTION)
    return list(dict.fromkeys(said))


def threshold_sentence(item: WorldPaths) -> str:
    """Whether the thresholds of a world's paths held at every step."""
    if not item.has_thresholds:
        return "no thresholds"
    counted = "" if item.claim.steps is None else f"{item.claim.text}; "
    return f"{counted}thresholds held at every step of {item.held} of {plural(len(item.paths), 'path')}"


def called(view: PathsView) -> str:
    """What a yes of the run's question is called."""
    name = view.request.question.called
    return name if len(name) <= MOST_NAMED else f"{name[: MOST_NAMED - 1].rstrip()}…"


def percent(item: ShareEstimate) -> str:
    """A share; a dash where no path is scored."""
    return "–" if item.share is None else f"{100 * item.share:.0f} %"


def interval(item: ShareEstimate) -> str:
    """A share's exact interval in percent."""
    if item.low is None or item.high is None:
        return "[–]"
    return f"[{100 * item.low:.0f}, {100 * item.high:.0f}]"


def points(value: float) -> str:
    """A difference of shares in points, with a minus sign that is one; a small one never reads as none."""
    small = 0.0005 <= abs(value) < 0.005
    text = f"{100 * value:.1f}" if small else f"{100 * value:.0f}".replace("-0", "0")
    return text.replace("-", "−")


def decided_text(view: PathsView, item: Comparison) -> str:
    """Whether and when a difference was decided."""
    if item.decided_after is None:
        return f"not decided after {plural(view.drawn, 'path')} of each world"
    return f"decided after {plural(item.decided_after, 'path')} of each world"
