"""The declarative base: constraint names, column types and the integer key that all tables share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import JSON, BigInteger, MetaData
from sqlalchemy.orm import DeclarativeBase, mapped_column

from db.types import AnyText, CompressedBytes, RealNumber, UtcDateTime

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

NEVER_REUSED = {"sqlite_autoincrement": True}
"""Table option: without it SQLite hands a deleted row's id out again, and an old link opens a stranger."""

Key = Annotated[int, mapped_column(primary_key=True)]
BigInt = Annotated[int, mapped_column(BigInteger)]


class Base(DeclarativeBase):
    """Base of all mapped classes; the annotation map fixes one column type per Python type."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own declaration
        str: AnyText,
        float: RealNumber,
        datetime: UtcDateTime,
        bytes: CompressedBytes,
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }
