"""Policies as pages offer them."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    key: str
    name: str
    about: str
    fuses: bool
    certifies: bool
    layouts: tuple[str, ...]
