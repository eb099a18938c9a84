"""The columns of a comparison: what may stand beside each other, and what tells the columns apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from app.services.errors import ServiceError
from app.services.known_policies import KNOWN_POLICIES, fitted
from app.services.policy_words import policy_name
from app.services.views.audits import AuditSettings

MOST_CHAINS = 8


def checked_columns(columns: Sequence[AuditSettings]) -> list[AuditSettings]:
    """The settings of each column with what its policy has not left out.

    Raises:
        ServiceError: There are fewer than two columns or too many, two are alike, or a policy is unknown.
    """
    wanted = [fitted(settings, settings.policy) for settings in columns]
    if not 2 <= len(wanted) <= MOST_CHAINS:
        raise ServiceError(f"{len(wanted)} columns cannot be run beside each other; choose 2 to {MOST_CHAINS}.")
    if len(set(wanted)) < len(wanted):
        raise ServiceError("Two columns have the same policy and settings; change or remove one of them.")
    return wanted


def labels_of(columns: Sequence[AuditSettings]) -> list[str]:
    """What sessions and batches of one run are told apart by in their names."""
    twice = {policy for policy, times in Counter(own.policy for own in columns).items() if times > 1}
    titles = [policy_name(own.policy) for own in columns]
    return [
        f"{title} {place}" if own.policy in twice else title
        for place, (own, title) in enumerate(zip(columns, titles, strict=True), 1)
    ]


def own_model(settings: AuditSettings) -> bool:
    """Whether a policy decodes a checkpoint of its own: its factual view is then not the audited model's."""
    return any(item.key == settings.policy and item.kind == "training" for item in KNOWN_POLICIES)
