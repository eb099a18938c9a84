"""The environment of Alembic; run through :mod:`db.database`."""
