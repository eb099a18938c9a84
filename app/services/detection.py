"""The detector of a request: the program's own lexicons and pipeline with a reviewer's choices."""

from __future__ import annotations

from typing import Protocol

from app.services.word_lists.service import UserListService
from coft_core.digests import same_digests
from coft_core.errors import InvalidInputError
from coft_core.masking.spans import SpanDetector
from coft_core.types import FAMILIES, PROXY_FAMILIES

PROTECTED = tuple(family for family in FAMILIES if family not in PROXY_FAMILIES)
GROUPS = {"all": FAMILIES, "protected": PROTECTED, "none": ()}
"""Words that stand for several families."""


def families_from_text(text: str) -> tuple[str, ...]:
    """Attribute families from their names, separated by commas, with ``all``, ``protected`` and ``none`` as groups.

    Raises:
        InvalidInputError: A name is neither a family nor a group.
    """
    chosen: set[str] = set()
    for name in (part.strip().lower() for part in text.split(",")):
        if name and name not in (*FAMILIES, *GROUPS):
            raise InvalidInputError(
                f"There is no attribute family {name!r}; use some of {', '.join((*GROUPS, *FAMILIES))}."
            )
        chosen.update(GROUPS.get(name, (name,)))
    return tuple(family for family in FAMILIES if family in chosen)


class Choices(Protocol):
    """What a reviewer decides about spans before any is found: settings of an audit or of a calibration."""

    @property
    def masked_families(self) -> tuple[str, ...] | None:
        """Families whose detected spans are masked; None takes the program's own choice."""

    @property
    def user_list_id(self) -> int | None:
        """Word list that wins over what is detected."""


class Detectors:
    """Gives each request its detector; lexicons and pipeline are loaded once."""

    def __init__(self, detector: SpanDetector, user_lists: UserListService) -> None:
        """Keep the detector whose families are the program's own choice, and the word lists."""
        self._detector = detector
        self._user_lists = user_lists

    @property
    def masked_families(self) -> tuple[str, ...]:
        """Families that are masked unless a request says otherwise."""
        return self._detector.masked_families

    def choose(self, choices: Choices) -> SpanDetector:
        """The detector of a request.

        Raises:
            InvalidInputError: A family is unknown.
            NotFoundError: The word list has been deleted.
        """
        families = choices.masked_families
        chosen = None if choices.user_list_id is None else self._user_lists.load(choices.user_list_id)
        return self._detector.adapted(self.masked_families if families is None else families, chosen)

    def list_name(self, choices: Choices) -> str:
        """Name of the request's word list; empty if it has none."""
        return "" if choices.user_list_id is None else self._user_lists.load(choices.user_list_id).name

    def list_labelled(self, label: str) -> int | None:
        """The word list that a detector's version names by this label; None if it is not stored."""
        found = (
            item.id for item in self._user_lists.list() if same_digests(f"list {item.name!r}+{item.digest}", label)
        )
        return next(found, None)

    def list_is_gone(self, choices: Choices) -> bool:
        """Whether the request's word list has been deleted."""
        return choices.user_list_id is not None and not self._user_lists.exists(choices.user_list_id)
