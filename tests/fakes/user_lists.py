"""Word lists kept in memory."""

from __future__ import annotations

from pathlib import Path

from app.lists.service import UserListView
from app.lists.upload import ParsedUserList, parse_user_list, user_list_csv
from app.shared.errors import ServiceError
from coft_core.text.user_list import UserList
from coft_core.types import UserTerm
from db.user_lists import UserListRecord
from tests.fakes.data import NOW


class FakeUserLists:
    def __init__(self) -> None:
        self.stored: dict[int, tuple[UserListRecord, tuple[UserTerm, ...]]] = {}
        self.used: set[int] = set()

    def parse(
        self, path: Path, filename: str | None = None, action: str = "mask", family: str = "other"
    ) -> ParsedUserList:
        return parse_user_list(path, filename, action, family)

    def add(self, name: str, parsed: ParsedUserList, replace: bool = False) -> UserListView:
        taken = next((key for key, (summary, _) in self.stored.items() if summary.name == name), None)
        if taken is not None and not replace:
            raise ServiceError(f"There is a word list “{name}” already; choose another name, or replace it.")
        self.stored.pop(taken or 0, None)
        terms = tuple(term for _, term in parsed.terms)
        number = 1 + max(self.stored, default=0)
        digest = UserList(name, terms).digest
        self.stored[number] = (
            UserListRecord(id=number, name=name, digest=digest, created_at=NOW, term_count=len(terms)),
            terms,
        )
        return self.view(number)

    def list(self) -> tuple[UserListRecord, ...]:
        return tuple(summary for summary, _ in self.stored.values())

    def view(self, user_list_id: int) -> UserListView:
        return UserListView(*self.stored[user_list_id])

    def named(self, name: str) -> UserListView:
        found = next((key for key, (summary, _) in self.stored.items() if summary.name == name), None)
        if found is None:
            raise ServiceError(f"There is no word list “{name}”; the lists are: none yet.")
        return self.view(found)

    def load(self, user_list_id: int) -> UserList:
        summary, terms = self.stored[user_list_id]
        return UserList(summary.name, terms)

    def write_csv(self, user_list_id: int, folder: Path) -> Path:
        path = Path(folder) / f"word-list-{user_list_id}.csv"
        path.write_text(user_list_csv(self.stored[user_list_id][1]), "utf-8")
        return path

    def delete(self, user_list_id: int) -> None:
        if user_list_id in self.used:
            raise ServiceError("A calibration was made with this word list; delete the calibration first.")
        del self.stored[user_list_id]
