"""Pictures of a chain as SVG that needs no script: sensitivity by step, and set size with threshold by step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from app.report import words
from app.shared.audits import SENSITIVE
from app.shared.format import plural, probability, threshold
from app.shared.step_words import has_threshold
from coft_core.types import Step

WIDTH = 680
"""Pixels of a chart: the width of a printed A4 page, so that the same drawing serves screen and paper."""
STRIP_HEIGHT = 44
MOST_CELLS = 340
INK, QUIET, LINE, ACCENT, BARS, SIGNAL, CAUTION = (
    "#1b1c1e", "#666a70", "#e3e3df", "#2b59c3", "#84878d", "#b4470c", "#855200",
)  # fmt: skip
_BASELINE, _UP, _DOWN, _SCALE = 30, 28, 11, 22.5

STEPS_HEIGHT = 230
LEFT, RIGHT = 58, WIDTH - 6
SIZES = (24, 98)
"""Top and bottom of the chart of set sizes."""
PROBABILITIES = (114, 194)
"""Top and bottom of the chart of probabilities, which has a logarithmic axis."""


def strip(steps: Sequence[Step]) -> Markup:
    """Sensitivity of every token: bars up where the visible attribute makes it likelier, down where masking does.

    Long chains share a cell among neighbours, which then shows the strongest of them.
    """
    if not steps:
        return Markup("")
    per = math.ceil(len(steps) / MOST_CELLS)
    cells = [steps[start : start + per] for start in range(0, len(steps), per)]
    width = WIDTH / max(len(cells), 1)
    parts = [_baseline(steps)]
    for index, cell in enumerate(cells):
        strongest = max((step.diagnostics.log_ratio for step in cell), key=abs)
        high = min(_DOWN if strongest < 0 else _UP, abs(strongest) * _SCALE)
        top = _BASELINE if strongest < 0 else _BASELINE - high
        colour = SIGNAL if abs(strongest) >= SENSITIVE else BARS
        if high >= 0.4:
            left, wide = (index + 0.15) * width, min(width * 0.7, 14)
            parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{colour}"/>')
        if any(step.fallback for step in cell):
            middle = (index + 0.15) * width + min(width * 0.7, 14) / 2
            parts.append(f'<path d="M{middle:.1f} 33.5l4 7h-8z" fill="{CAUTION}"/>')
    hot = [str(step.index + 1) for step in steps if abs(step.diagnostics.log_ratio) >= SENSITIVE]
    said = f"sensitive at {'step' if len(hot) == 1 else 'steps'} {', '.join(hot)}" if hot else "no step is sensitive"
    return Markup(
        f'<svg class="heatstrip" viewBox="0 0 {WIDTH} {STRIP_HEIGHT}" role="img" '
        f'aria-label="Sensitivity of {len(steps)} steps: {said}.">{"".join(parts)}</svg>'
    )


def _baseline(steps: Sequence[Step]) -> str:
    """Solid where thresholds are calibrated, dotted where they are borrowed, dashed where there is none."""
    dashes = {"calibrated": "", "mismatch": "", "inherited": ' stroke-dasharray="1.5 3"'}
    parts, start = [], 0
    for index in range(1, len(steps) + 1):
        if index < len(steps) and steps[index].state == steps[start].state:
            continue
        dash = dashes.get(steps[start].state, ' stroke-dasharray="5 3"')
        left, right = start / len(steps) * WIDTH, index / len(steps) * WIDTH
        parts.append(
            f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{_BASELINE}" y2="{_BASELINE}" stroke="{QUIET}"{dash}/>'
        )
        start = index
    return "".join(parts)


def steps_chart(steps: Sequence[Step]) -> Markup:
    """Certified-set size above, threshold and support of the written token below; each step tells its numbers.

    Steps without a threshold that says something have no bar, and those without any no threshold.
    """
    if not steps:
        return Markup("")
    cell = (RIGHT - LEFT) / len(steps)
    supports = [math.exp(step.log_support) for step in steps]
    taus = [math.exp(step.log_tau) if has_threshold(step) else None for step in steps]
    axis = _Axis.over([*supports, *(tau for tau in taus if tau)])
    named = "probability as typed" if any(step.certified_in == "factual" for step in steps) else "lower probability"
    parts = [
        *_legend(named),
        *_size_axis(steps),
        *axis.drawn(),
        *_step_axis(len(steps), cell),
        *_bars(steps, cell),
        _threshold_line(taus, cell, axis),
        *_dots(supports, cell, axis),
        *_told(steps, taus, cell, named),
        *_open_note(steps),
    ]
    return Markup(
        f'<svg class="stepschart" viewBox="0 0 {WIDTH} {STEPS_HEIGHT}" role="img" '
        f'aria-label="Set size, threshold and {named} of {plural(len(steps), "step")}; the table below has the '
        f'numbers.">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _rule(y: float, colour: str = LINE) -> str:
    return f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>'


def _legend(support: str) -> Iterator[str]:
    """What the three marks are."""
    yield f'<rect x="{LEFT}" y="4" width="9" height="9" fill="{BARS}"/>'
    yield _text(LEFT + 14, 12, "tokens in the certified set")
    yield f'<circle cx="{LEFT + 178}" cy="8.5" r="2.6" fill="{ACCENT}"/>'
    yield _text(LEFT + 186, 12, f"{support} of the written token")
    yield f'<path d="M{LEFT + 398} 8.5h18" stroke="{INK}" stroke-width="1.6"/>'
    yield _text(LEFT + 422, 12, "threshold τ")


def _largest(steps: Sequence[Step]) -> int:
    return max((step.set_size for step in steps if _limited(step)), default=4) or 1


def _limited(step: Step) -> bool:
    return step.state not in ("none", "uninformative")


def _size_axis(steps: Sequence[Step]) -> Iterator[str]:
    """Nothing, half and the largest set, on whole numbers."""
    top, bottom = SIZES
    largest = _largest(steps)
    for value in sorted({0, largest // 2, largest}):
        y = bottom - (bottom - top) * value / largest
        yield _rule(y, LINE if value else QUIET)
        yield _text(LEFT - 6, y + 3.5, f"{value:,}", "end")
    yield _upright((top + bottom) / 2, "set size")


def _upright(y: float, text: str) -> str:
    return _text(12, y, text, "middle", f' transform="rotate(-90 12 {y:.1f})"')


@dataclass(frozen=True, slots=True)
class _Axis:
    """The axis of probabilities, which spans so many powers of ten below 1."""

    decades: int

    @classmethod
    def over(cls, values: Sequence[float]) -> _Axis:
        """The axis that holds all values above 0."""
        return cls(max(1, -math.floor(math.log10(min((value for value in values if value > 0), default=0.1)))))

    def height(self, value: float) -> float:
        """Where a probability stands; 0 stands at the bottom."""
        top, bottom = PROBABILITIES
        below = self.decades if value <= 0 else min(self.decades, -math.log10(value))
        return top + (bottom - top) * below / self.decades

    def drawn(self) -> Iterator[str]:
        """At most four powers of ten, however many it spans."""
        for power in range(0, self.decades + 1, math.ceil(self.decades / 3)):
            value = 10.0**-power
            yield _rule(self.height(value))
            yield _text(LEFT - 6, self.height(value) + 3.5, f"{value:g}", "end")
        yield _rule(PROBABILITIES[1], QUIET)
        yield _upright(sum(PROBABILITIES) / 2, "probability")


def _step_axis(count: int, cell: float) -> Iterator[str]:
    """About ten numbers of steps, the first and round ones."""
    exponent = 10 ** max(0, math.floor(math.log10(max(1, count / 10))))
    every = next(factor * exponent for factor in (1, 2, 5, 10, 20) if count / (factor * exponent) <= 12)
    for number in [1, *range(every, count + 1, every)] if every > 1 else range(1, count + 1):
        yield _text(LEFT + (number - 0.5) * cell, PROBABILITIES[1] + 14, str(number), "middle")
    yield _text((LEFT + RIGHT) / 2, PROBABILITIES[1] + 30, "step", "middle")


def _bars(steps: Sequence[Step], cell: float) -> Iterator[str]:
    top, bottom = SIZES
    largest, wide = _largest(steps), min(cell * 0.62, 24)
    for place, step in enumerate(steps):
        if _limited(step) and step.set_size:
            high = (bottom - top) * step.set_size / largest
            left = LEFT + (place + 0.5) * cell - wide / 2
            yield (
                f'<rect x="{left:.1f}" y="{bottom - high:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{BARS}"/>'
            )


def _threshold_line(taus: Sequence[float | None], cell: float, axis: _Axis) -> str:
    """A line that is level over each step, and broken where there is no threshold."""
    path, before = [], None
    for place, tau in enumerate(taus):
        if tau is not None:
            left, y = LEFT + place * cell, axis.height(tau)
            path.append(f"{'M' if before is None else 'L'}{left:.1f} {y:.1f}H{left + cell:.1f}")
        before = tau
    return f'<path d="{"".join(path)}" fill="none" stroke="{INK}" stroke-width="1.6"/>' if path else ""


def _dots(supports: Sequence[float], cell: float, axis: _Axis) -> Iterator[str]:
    for place, support in enumerate(supports):
        middle, y = LEFT + (place + 0.5) * cell, axis.height(support)
        yield f'<circle cx="{middle:.1f}" cy="{y:.1f}" r="2.6" fill="{ACCENT}"/>'


def _told(steps: Sequence[Step], taus: Sequence[float | None], cell: float, named: str) -> Iterator[str]:
    """An unseen field over each step, whose numbers show where a pointer rests on it."""
    top, high = SIZES[0], PROBABILITIES[1] - SIZES[0]
    for place, (step, tau) in enumerate(zip(steps, taus, strict=True)):
        size = plural(step.set_size, "token") + " in the set" if _limited(step) else "no set that says anything"
        support = probability(math.exp(step.log_support), words.DIGITS)
        limit = "no threshold" if tau is None else f"τ {threshold(tau)}"
        said = f"step {step.index + 1}, {words.printable_token(step.token)}: {size}; {named} {support}, {limit}"
        yield (
            f'<rect x="{LEFT + place * cell:.1f}" y="{top}" width="{cell:.1f}" height="{high}" fill="none" '
            f'pointer-events="all"><title>{escape(said)}</title></rect>'
        )


def _open_note(steps: Sequence[Step]) -> Iterator[str]:
    """Why there is no set at any step."""
    if not any(_limited(step) for step in steps):
        none = all(step.state == "none" for step in steps)
        said = "no calibration, so there is no set" if none else "the thresholds are too weak to say anything"
        yield _text((LEFT + RIGHT) / 2, sum(SIZES) / 2, said, "middle")
