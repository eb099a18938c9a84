"""Word lists, whose terms win over what is detected: added, listed, shown and removed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from app.lists.service import UserListService, UserListView
from app.lists.upload import user_list_csv
from app.shared.commands import Choices
from app.shared.files import write_text
from app.shared.needs import LEAD, READ
from app.shared.operations import Json, Tell, command, operation
from app.shared.wiring import Services
from coft_core.types import FAMILIES
from db.user_lists import UserListRecord


@dataclass(frozen=True, slots=True)
class UserListRequest:
    """How a file is stored as a word list.

    Attributes:
        name: name of the list (default: the file's)
        action: for terms that name none
        family: for terms that name none
        replace: replace the list of this name
    """

    name: str | None = None
    action: Literal["mask", "keep"] = "mask"
    family: Annotated[str, Choices((*FAMILIES, "other"))] = "other"
    replace: bool = False


Lists = UserListView | tuple[UserListRecord, ...]
"""A word list with its terms, or all of them without."""


def user_list_json(item: UserListView | UserListRecord) -> Json:
    """A word list; where its terms are known, each has its family and its action, ``"mask"`` or ``"keep"``."""
    summary, terms = (item.summary, item.terms) if isinstance(item, UserListView) else (item, None)
    plain = [{"term": t.term, "family": t.family, "action": "keep" if t.keep else "mask"} for t in terms or ()]
    return {
        "name": summary.name,
        "digest": summary.digest,
        "terms": summary.term_count if terms is None else plain,
        "created_at": summary.created_at.isoformat(),
        "user_list_id": summary.id,
    }


def _lists_json(lists: Lists | list[UserListView]) -> Any:
    return user_list_json(lists) if isinstance(lists, UserListView) else [user_list_json(item) for item in lists]


def _print(lists: Lists) -> None:
    """A word list term by term, or one line a list."""
    if isinstance(lists, UserListView):
        print(f"Word list “{lists.summary.name}”: {lists.masked} masked, {lists.kept} kept; {lists.summary.digest}")
        for term in lists.terms:
            print(f"{'keep' if term.keep else 'mask'}  {term.family:<14} {term.term}")
        return
    if not lists:
        print("No word lists yet. Store one with: python -m app lists add terms.csv")
    for item in lists:
        print(f"{item.term_count:>6} terms  {item.digest[:12]}  {item.created_at:%Y-%m-%d}  {item.name}")


def _write(wired: Services, lists: Lists, file: Path) -> str:
    """Write the list as CSV to this file."""
    if isinstance(lists, UserListView):
        write_text(file, user_list_csv(lists.terms))
    return ""


@operation(need=READ, json=_lists_json)
def user_lists(wired: Services, name: str = "") -> list[UserListView] | tuple[UserListRecord, ...]:
    """List word lists, whose terms win over what is detected.

    Args:
        name: Only the list of this name, with its terms.

    Returns:
        A list of word lists: user_list_id, name, terms (their number, or with a name the terms) and others.
    """
    return [wired[UserListService].named(name)] if name else wired[UserListService].list()


@command("lists show", json=_lists_json, text=_print, write=_write)
def show_user_lists(wired: Services, name: str | None = None) -> Lists:
    """Show a word list, or all of them without their terms.

    Args:
        name: name of the list
    """
    return wired[UserListService].list() if name is None else wired[UserListService].named(name)


@operation(need=LEAD, json=user_list_json, answer="user_list", command="lists add", text=_print)
def add_user_list(
    wired: Services, file: Path, settings: UserListRequest | None = None, *, tell: Tell | None = None
) -> UserListView:
    """Store a file as a word list.

    Args:
        file: CSV with the columns term, family and action, or TXT with one term a line.
        settings: All optional: name (else the file's), action (mask or keep) and family for terms that name none,
            replace (true takes the place of a list of the same name).

    Returns:
        The word list with its terms.
    """
    asked = settings or UserListRequest()
    parsed = wired[UserListService].parse(file, file.name, asked.action, asked.family)
    if tell is not None:
        for error in parsed.errors:
            tell(f"line {error.line}: {error.column} {error.message}")
    return wired[UserListService].add(asked.name or file.stem, parsed, asked.replace)


@operation(need=LEAD, json=lambda _: None, command="lists remove")
def remove_user_list(wired: Services, name: str) -> str:
    """Remove a word list that neither a calibration nor a running job uses.

    Args:
        name: The list's name.

    Returns:
        Nothing.
    """
    view = wired[UserListService].named(name)
    wired[UserListService].delete(view.summary.id)
    return f"Word list “{view.summary.name}” removed."
