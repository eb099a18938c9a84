"""The policies that an audit can be decoded with: the one list that pages, commands and services read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.services.errors import ServiceError
from app.services.views.audits import AuditSettings
from app.services.views.policies import PolicyInfo

KNOWN_POLICIES: tuple[PolicyInfo, ...] = (
    PolicyInfo("coft", "COFT", "fused with a masked reading and certified", True, True, ("joint", "factorized")),
    PolicyInfo("vanilla", "Vanilla", "the model as it is", False, False, ("joint",)),
)


def policy_info(key: str, known: Sequence[PolicyInfo] = KNOWN_POLICIES) -> PolicyInfo:
    """What is known of a policy.

    Raises:
        ServiceError: There is no such policy.
    """
    found = next((item for item in known if item.key == key), None)
    if found is None:
        names = ", ".join(repr(item.key) for item in known)
        raise ServiceError(f"There is no policy {key!r}; choose one of {names}.")
    return found


def fitted(settings: AuditSettings, policy: str) -> AuditSettings:
    """The settings under a policy: what it does not have is left out, or stands at its usual value.

    Raises:
        ServiceError: There is no such policy.
    """
    info = policy_info(policy)
    layout = settings.mask_layout if settings.mask_layout in info.layouts else info.layouts[0]
    if info.certifies:
        return replace(settings, policy=policy, mask_layout=layout)
    return replace(settings, policy=policy, mask_layout=layout, calibration_id=None, group=None)
