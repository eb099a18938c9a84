"""The store: tables, named migrations, and one module a feature."""
