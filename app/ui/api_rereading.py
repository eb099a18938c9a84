"""The endpoint that reads an audit at another lambda or alpha; its name and arguments stay."""

from __future__ import annotations

from typing import Any

from app.bootstrap import Services
from app.services.reread.plain import rereading_json
from app.services.views.rereading import RereadRequest
from app.ui.errors import shown
from app.ui.offering import offer


class RereadingEndpoints:
    """One method per endpoint; docstrings are the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._rereads = services.rereads

    @shown
    def reread_audit(
        self, session: int, lam: float | None = None, alpha: float | None = None, branch: int | None = None
    ) -> dict[str, Any]:
        """Read a stored audit at another lambda or alpha, without the model; what is left out stays the audit's own.

        Each step is read after the tokens that stand before it, so that what follows the first step with another
        token is a reading of the old text and not what would be written.

        Args:
            session: The session.
            lam: Fusion weight.
            alpha: Risk level.
            branch: The branch; without one, the active branch.

        Returns:
            The steps as they read now; differs and certified are null where they hang on logits that were not kept.
        """
        request = RereadRequest(int(session), _number(lam), _number(alpha), None if branch is None else int(branch))
        return rereading_json(self._rereads.read(request))


def rereading_endpoints(services: Services) -> None:
    """Register the endpoint."""
    offer(RereadingEndpoints(services).reread_audit)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
