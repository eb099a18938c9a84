"""What formats ask of whoever publishes results, since the program cannot know it."""

from __future__ import annotations

from dataclasses import dataclass

from app.shared.errors import ServiceError
from app.shared.results.record import Result, Results

RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")
MOST_NAMED = 6


@dataclass(frozen=True)
class Publication:
    """What is told of a publication.

    Attributes:
        organization: who publishes the results (every-eval-ever)
        relationship: the publisher's to the model: first_party, third_party, collaborative or other (every-eval-ever)
        dataset: id of the benchmark on the Hub, such as cais/hle (hub)
        task: id of the benchmark's task, from its eval.yaml (hub)
        result: which result, as SUITE/METRIC/METHOD, where there are several (hub)
        source_url: where the bundle or a report of it can be had (hub, card)
    """

    organization: str = ""
    relationship: str = ""
    dataset: str = ""
    task: str = ""
    result: str = ""
    source_url: str = ""

    def require(self, form: str, *names: str) -> None:
        """Refuse to invent what a format needs."""
        for name in names:
            if not getattr(self, name).strip():
                raise ServiceError(f"The format {form} needs the {name}, which only you know; name it.")
        if "relationship" in names and self.relationship not in RELATIONSHIPS:
            raise ServiceError(
                f"The relationship {self.relationship!r} is not known; choose {', '.join(RELATIONSHIPS)}."
            )

    def chosen(self, results: Results) -> Result:
        """The one result that a format can hold."""
        found = [one for one in results.results if self.result in ("", one.key)]
        if len(found) == 1:
            return found[0]
        keys = [one.key for one in results.results]
        listed = ", ".join(keys[:MOST_NAMED]) + (f" and {len(keys) - MOST_NAMED} more" if keys[MOST_NAMED:] else "")
        raise ServiceError(f"The format hub holds one result; name it as result. There are {listed}.")
