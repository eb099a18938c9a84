"""Alembic's environment; run through :mod:`db.migrate`."""
