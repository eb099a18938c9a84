"""Which column of an uploaded prompt set each field is read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.services.errors import ServiceError
from app.services.views import PROMPT_SET_FIELDS, ParsedPromptSet

USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "text", "input", "question", "prompt text"),
    "reference": ("reference", "completion", "continuation", "response", "target", "output", "answer"),
    "spans": ("spans",),
    "group": ("group",),
    "context": ("context", "context id"),
    "weight": ("weight", "weights"),
}
"""Names under which a field is looked for where no column has exactly its own, likeliest first."""


def map_columns(name: str, columns: Sequence[str], asked: Mapping[str, str] | None = None) -> dict[str, str]:
    """Choose a column for each field.

    A field that is not asked for is read from the column of its own name, else from one of its usual names in any
    letter case; a column that is asked for another field is left to that one.

    Args:
        name: The file's name, for messages.
        columns: Columns of the file, each once.
        asked: Column by field; ``""`` reads the field from none.

    Returns:
        Column by field, in the order of the fields; fields without a column are left out.

    Raises:
        ServiceError: A field or a column is unknown, or two fields ask for one column.
    """
    wanted = dict(asked or {})
    _check_asked(name, columns, wanted)
    taken = {column for column in wanted.values() if column}
    mapping: dict[str, str] = {}
    for field in PROMPT_SET_FIELDS:
        column = wanted[field] if field in wanted else _usual(field, [c for c in columns if c not in taken])
        if column:
            mapping[field] = column
            taken.add(column)
    return mapping


def grouping_note(prompts: ParsedPromptSet) -> str:
    """What a set says that names groups and no contexts: each row counts by itself; empty where it names both or none.

    Earlier versions counted the rows of one group as one context.
    """
    found = dict(prompts.mapping)
    groups = [example.group for _, example in prompts.rows if example.group]
    if "group" not in found or "context" in found or len(set(groups)) == len(groups):
        return ""
    return (
        f"The column “{found['group']}” says whom a row is about, so each row counts as a context of its own. If rows "
        "belong together, as one question asked in several ways does, give them the same value in a column “context”; "
        f"if “{found['group']}” says just that, read context from it."
    )


def require_prompts(prompts: ParsedPromptSet) -> None:
    """Refuse a prompt set of which nobody knows what column holds its prompts.

    Raises:
        ServiceError: It is such a one.
    """
    if "prompt" not in dict(prompts.mapping) and prompts.columns:
        raise ServiceError(
            f"{prompts.filename} has no column “prompt”; its columns are {_listed(prompts.columns)}: name one of them "
            "“prompt”, or say which one holds the prompts."
        )


def _check_asked(name: str, columns: Sequence[str], asked: Mapping[str, str]) -> None:
    for field, column in asked.items():
        if field not in PROMPT_SET_FIELDS:
            raise ServiceError(f"A prompt set has no field “{field}”; its fields are {', '.join(PROMPT_SET_FIELDS)}.")
        if column and column not in columns:
            listed = _listed(columns)
            raise ServiceError(f"{name} has no column “{column}” to read {field} from; its columns are {listed}.")
        other = next((f for f, c in asked.items() if column and c == column and f != field), None)
        if other is not None:
            raise ServiceError(f"The column “{column}” is asked for {field} and for {other}; choose one for each.")


def _usual(field: str, columns: Sequence[str]) -> str:
    """The column of a field's own name, else of one of its usual names; empty if there is none."""
    if field in columns:
        return field
    by_plain_name = {_plain(column): column for column in reversed(columns)}
    return next((by_plain_name[name] for name in USUAL_NAMES[field] if name in by_plain_name), "")


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f"“{column}”" for column in columns)


def _plain(column: str) -> str:
    return " ".join(column.replace("_", " ").replace("-", " ").lower().split())
