"""The endpoint for attribute swaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.bootstrap import Services
from app.services.errors import ServiceError
from app.services.swap.plain import swap_json
from app.services.views.swaps import SwapRequest
from app.ui.errors import shown
from app.ui.offering import offer
from app.ui.presenters_api import audit_settings
from app.ui.presenters_session import spans_from

OPTIONS = (
    "pronouns", "groups", "group_pronouns", "category", "targets", "roles", "include_original", "max_new_tokens",
    "step", "top",
)  # fmt: skip


class SwapEndpoint:
    """The endpoint's method; its docstring is the interface's documentation."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._services = services

    @shown
    def swap_attribute(
        self,
        prompt: str,
        exchange: dict[str, Any],
        spans: list[dict[str, Any]] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Exchange an attribute in a prompt and compare what follows, with and without the policy; nothing is stored.

        Args:
            prompt: The text that the model continues.
            exchange: What takes the place of what: pronouns (some of she, he, they), groups (words), group_pronouns
                (one a group, or null), category (family that the groups replace), targets (starts of the spans that
                are replaced), roles (role by start of a pronoun), include_original, max_new_tokens, step (the compared
                token, from 1), top (candidates a variant).
            spans: Sensitive spans; without them the detector finds them.
            settings: Those of start_audit.

        Returns:
            variants (each with its chains, policy and vanilla), step, and distances between the variants in the
            factual, the masked and the fused view.
        """
        request = swap_request_from(prompt, exchange, spans_from(spans), settings)
        return swap_json(self._services.swaps.compare(request))


def swap_request_from(
    prompt: str, exchange: Mapping[str, Any] | None, spans: Any, settings: dict[str, Any] | None
) -> SwapRequest:
    """A request from JSON.

    Raises:
        ServiceError: There is no option or setting of that name, or one is of the wrong kind.
    """
    given = dict(exchange or {})
    if unknown := sorted(set(given) - set(OPTIONS)):
        raise ServiceError(f"There is no option {unknown[0]!r}; the options are {', '.join(OPTIONS)}.")
    try:
        options: dict[str, Any] = {
            name: tuple(given[name])
            for name in ("pronouns", "groups", "group_pronouns", "targets")
            if given.get(name) is not None
        }
        options |= {name: int(given[name]) for name in ("max_new_tokens", "top") if name in given}
        options |= {name: given[name] for name in ("category", "include_original") if name in given}
        if "step" in given:
            options["answer_step"] = int(given["step"]) - 1
        if "roles" in given:
            options["roles"] = tuple((int(start), str(role)) for start, role in dict(given["roles"]).items())
    except (TypeError, ValueError) as error:
        raise ServiceError(f"An option of the exchange is of the wrong kind: {error}.") from error
    return SwapRequest(prompt=prompt, settings=audit_settings(settings), spans=spans, **options)


def swap_endpoints(services: Services) -> None:
    """Register the endpoint; it runs two chains a variant, so one at a time."""
    offer(SwapEndpoint(services).swap_attribute, at_once=1)
