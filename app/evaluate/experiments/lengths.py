"""One figure at several lengths of the text: a row a length, a column a method, and their difference."""

from __future__ import annotations

from dataclasses import dataclass

from app.evaluate import words
from app.evaluate.experiments.figures import Figures, Table
from app.evaluate.experiments.grid import Curves, Grid, Line, Value
from app.evaluate.experiments.tables import seed_note, stand_in_notes, unread_notes
from app.evaluate.layout import Head
from coft_core.experiments.averages import Part


@dataclass(frozen=True)
class LengthsTable(Table):
    """Methods at each length; ``figure`` has the length in the place of its braces."""

    suite: str
    figure: str
    lengths: tuple[int, ...]
    methods: tuple[str, str]
    measure: str

    def grid(self, figures: Figures) -> Grid:
        """Make it."""
        lines, curves = [], {label: dict[float, Value]() for label in self.methods}
        for length in self.lengths:
            part = Part(self.suite, self.figure.format(length))
            first, second = (figures.figure(part, label) for label in self.methods)
            for label, own in zip(self.methods, (first, second), strict=True):
                if own is not None and own.value.value is not None:
                    curves[label][length] = own.value
            gap = None if first is None or second is None else second.less(first)
            values = (*(None if own is None else own.value for own in (first, second)), gap)
            lines.append(Line(str(length), values, str(length)))
        heads = [
            *(Head(label, words.ARROWS["higher"]) for label in self.methods),
            Head(f"{self.methods[1]} less {self.methods[0]}"),
        ]
        notes = [seed_note(figures), *unread_notes(figures), *stand_in_notes(figures)]
        picture = Curves("tokens of the text at most", self.measure, curves) if any(curves.values()) else None
        return self.made(figures, "Tokens", heads, lines, notes, picture)
