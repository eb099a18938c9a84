"""What wrote a report."""

from __future__ import annotations

NAME = "COFT Audit"
VERSION = "0.1.0"
"""Version of the program; a test holds it together with the project's."""
