"""The store: tables, what makes them, and one module a feature."""
