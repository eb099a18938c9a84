"""A run in a notebook: its tokens, and of the selected one the three readings of every candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from uuid import uuid4

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from coft_core.assets import assets_path
from coft_core.effects import LARGEST_LOG, effect_sentence, masked_words
from coft_core.messages import catalogue
from coft_core.types import Candidate, Run, Step

SENSITIVE = 0.5
"""Absolute log ratio of the factual to the masked probability from which a token is marked as sensitive."""
TALLEST = 14
"""Pixels of a sensitivity bar; one log unit has ten."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as a notebook shows it, see :func:`show`."""

    run: Run

    def _repr_html_(self) -> str:
        """The inspector as HTML; each call has names of its own, so that a notebook can show a run twice."""
        words = masked_words(self.run.prompt, self.run.spans)
        return _template().render(
            style=_style(),
            # Names of fields must differ from those of every other output of a notebook.
            name=f"coft-{uuid4().hex[:12]}",
            run=self.run,
            sensitive=sum(abs(step.diagnostics.log_ratio) >= SENSITIVE for step in self.run.steps),
            steps=[_shown(step, words) for step in self.run.steps],
            selected=_selected(self.run.steps),
        )


def show(run: Run) -> RunView:
    """Show a run in a notebook: tokens with their sensitivity, and a table of the selected token's candidates.

    The token whose probability differs most between the two readings is selected at first. The HTML needs no network
    and no script: tokens are radio buttons, and styles show what belongs to the checked one.
    """
    return RunView(run)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(assets_path("notebook")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("run.html.j2")


@cache
def _style() -> Markup:
    return Markup(assets_path("notebook", "run.css").read_text("utf-8"))


def _selected(steps: Sequence[Step]) -> int:
    """Number of the step that is selected at first; 0 without steps."""
    strongest = max(steps, key=lambda step: abs(step.diagnostics.log_ratio), default=None)
    return 0 if strongest is None else strongest.index + 1


def _shown(step: Step, words: Sequence[str]) -> dict[str, object]:
    """A step as the template has it."""
    ratio = step.diagnostics.log_ratio
    return {
        "number": step.index + 1,
        "token": _visible(step.token),
        "state": _state(step),
        "mark": _mark(step),
        "bar": min(TALLEST, round(10 * min(abs(ratio), LARGEST_LOG))),
        "down": ratio < 0,
        "sensitive": abs(ratio) >= SENSITIVE,
        "effect": effect_sentence(
            ratio, words, _probability(step.log_p_factual), _probability(step.log_p_masked), catalogue("en")
        ),
        "set": _set(step),
        "tau": "none" if step.state == "none" or step.log_tau == -math.inf else _probability(step.log_tau),
        "forced": f"instead of {_visible(step.policy_token)}" if step.policy_token_id != step.token_id else "",
        "rows": [_row(row, step) for row in step.candidates],
    }


def _row(row: Candidate, step: Step) -> dict[str, object]:
    figures = (row.log_p_factual, row.log_p_masked, row.log_p_fused)
    return {
        "token": _visible(row.token),
        "written": row.token_id == step.token_id,
        "factual": _probability(figures[0]),
        "masked": _probability(figures[1]),
        "fused": _probability(figures[2]),
        # Without a threshold there is no set that a token could be in.
        "certified": row.certified and step.state != "none",
        "set": step.state != "none",
    }


def _state(step: Step) -> str:
    """What became of the threshold at a step, in words."""
    if step.state in ("none", "mismatch"):
        return "no threshold" if step.state == "none" else "threshold of another policy"
    if step.state == "uninformative":
        return "threshold too weak to say anything"
    if not step.certified:
        return "threshold missed, fallback" if step.fallback else "threshold missed"
    return "threshold held" if step.state == "calibrated" else "borrowed threshold held"


def _mark(step: Step) -> str:
    """The class that draws the state as a shape."""
    if step.state in ("none", "mismatch", "uninformative"):
        return "open"
    return ("held" if step.state == "calibrated" else "borrowed") if step.certified else "missed"


def _set(step: Step) -> str:
    """The size of the certified set."""
    if step.state == "none":
        return "none"
    return f"{step.set_size:,} token{'' if step.set_size == 1 else 's'}"


def _probability(log_value: float) -> str:
    """A probability with three places; a positive one never reads as zero."""
    value = math.exp(log_value)
    return "<0.001" if 0 < value < 0.0005 else f"{value:.3f}"


def _visible(token: str) -> str:
    """A token without its leading blank; blanks, line ends and what cannot be printed are made visible."""
    text = token[1:] if len(token) > 1 and token.startswith(" ") else token
    text = text.replace("\n", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}").replace("\t", "\N{RIGHTWARDS ARROW}")
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if text.strip() else "\N{OPEN BOX}" * max(1, len(text))
