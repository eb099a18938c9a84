"""A report's HTML as PDF."""

from __future__ import annotations

from app.shared.errors import ServiceError

DEBIAN_LIBRARIES = ("libpango-1.0-0", "libpangoft2-1.0-0", "libharfbuzz-subset0")
"""Packages of Debian that the library draws text with."""


def pdf_of(page: str) -> bytes:
    """A page that needs nothing else as a tagged PDF; the same page gives the same bytes."""
    try:
        # Loaded when it is asked for: it needs libraries of the system, and nothing else of the program does.
        from weasyprint import HTML
    except ImportError as error:
        raise ServiceError(
            f"PDF needs the package weasyprint, which cannot be imported ({error}); install requirements.txt, or "
            "choose the formal report as HTML."
        ) from error
    except OSError as error:
        raise ServiceError(
            "PDF needs the library Pango of the system, which is missing; on Debian run apt-get install "
            f"{' '.join(DEBIAN_LIBRARIES)}, or choose the formal report as HTML."
        ) from error
    written: bytes = HTML(string=page).write_pdf(pdf_tags=True)
    return written
