"""Where the store lives when nobody says otherwise."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_data_dir
from sqlalchemy import URL

from db.errors import StoreError

DIRECTORY_NAME = "coft-audit"
FILE_NAME = "coft-audit.sqlite3"


def default_database_url() -> str:
    """Return the URL of the per-user SQLite file, creating its folder for this user alone (mode 0700).

    Raises:
        StoreError: The folder cannot be created.
    """
    folder = Path(user_data_dir(DIRECTORY_NAME, appauthor=False))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(
            f"The data folder {folder} cannot be created ({reason}); give a database URL instead."
        ) from error
    return URL.create("sqlite", database=str(folder / FILE_NAME)).render_as_string(hide_password=False)
