"""Where the training data come from and under which licences."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bench.wordings import wordings


@dataclass(frozen=True, slots=True)
class Source:
    """A source of training data, as spaCy's metadata and the model card name it."""

    name: str
    url: str
    author: str
    license: str

    def to_dict(self) -> dict[str, str]:
        """Plain dictionary."""
        return asdict(self)


SOURCES = tuple(Source(**row) for row in wordings(__file__))
