"""Policies as pages offer them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coft_core.policies.parameters import Parameter

CertifiedIn = Literal["nothing", "both", "factual"]
"""In which readings a policy certifies its tokens, and so which calibrations fit it."""


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """A decoding policy that can be chosen.

    Attributes:
        key: Its name in settings.
        name: Its name on pages.
        about: What it does, in a few words that go on after a comma.
        fuses: Whether lambda matters to it.
        certifies: Whether it reads a calibration, and alpha with it.
        layouts: Mask layouts that it has, the usual one first.
        kind: What it acts on: ``reference``, ``fusion``, ``prompt``, ``steering``, ``constraint`` or ``training``.
        source: Where it was published; empty if nowhere.
        differs: How it differs from what its authors published.
        parameters: Its own parameters, besides the controls that all policies share.
        certified_in: The readings in which it certifies.
    """

    key: str
    name: str
    about: str
    fuses: bool
    certifies: bool
    layouts: tuple[str, ...]
    kind: str = "fusion"
    source: str = ""
    parameters: tuple[Parameter, ...] = ()
    certified_in: CertifiedIn = "nothing"
    differs: str = ""
