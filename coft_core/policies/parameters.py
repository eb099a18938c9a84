"""A policy's own parameters: typed, bounded and described once, so that pages and commands can ask for them."""

from __future__ import annotations

import math
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal

from coft_core.errors import InvalidInputError

Kind = Literal["number", "whole", "flag", "text", "texts", "choice", "model", "file"]
"""What a parameter is: a real or whole number, yes or no, a text, several texts, one of several names, a model (an id
or a folder), or a file."""

_KEY = "parameter"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a policy.

    Attributes:
        name: Its name in the policy.
        kind: What it is.
        default: Its value unless chosen otherwise.
        title: Its name on pages.
        help: What it does, in a sentence.
        low: Smallest value of a number; None leaves it open.
        high: Largest value of a number; None leaves it open.
        step: Sensible step of a slider.
        choices: The names to choose from.
        strength: Whether it says how strongly the policy acts, so that sweeps turn it.
        optional: Whether it may be left empty.
        later: Whether it came in a later version than its policy: at its default it is no part of fingerprints, so that
            those of earlier versions still agree.
    """

    name: str
    kind: Kind
    default: Any
    title: str
    help: str
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: tuple[str, ...] = ()
    strength: bool = False
    optional: bool = False
    later: bool = False

    def check(self, value: Any) -> None:
        """Refuse a value that the parameter cannot take.

        Raises:
            InvalidInputError: It has another type or lies outside the range.
        """
        if value is None or (value == "" and self.kind in ("text", "model", "file")):
            if not self.optional:
                raise InvalidInputError(f"{self.title} is missing; {self._wanted()}.")
            return
        if not self._fits(value):
            raise InvalidInputError(f"{self.title} is {value!r}; {self._wanted()}.")

    def _fits(self, value: Any) -> bool:
        if self.kind in ("number", "whole"):
            if isinstance(value, bool) or not isinstance(value, int if self.kind == "whole" else (int, float)):
                return False
            inside = (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
            return math.isfinite(value) and inside
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "texts":
            return isinstance(value, tuple) and all(isinstance(item, str) and item.strip() for item in value)
        return isinstance(value, str) and (self.kind != "choice" or value in self.choices)

    def _wanted(self) -> str:
        if self.kind in ("number", "whole"):
            noun = "a whole number" if self.kind == "whole" else "a number"
            if self.low is not None and self.high is not None:
                return f"give {noun} from {self.low:g} to {self.high:g}"
            return f"give {noun}" if self.low is None else f"give {noun} of at least {self.low:g}"
        wanted = {
            "flag": "say yes or no",
            "text": "give a text",
            "texts": "give one or more texts",
            "choice": f"choose {' or '.join(self.choices)}",
            "model": "give the id or the folder of a model",
            "file": "give the path of a file",
        }
        return wanted[self.kind]


def parameter(default: Any, kind: Kind, title: str, help: str, **rest: Any) -> Any:
    """A dataclass field that is a policy's parameter; see :class:`Parameter` for the arguments."""
    return field(default=default, metadata={_KEY: {"kind": kind, "title": title, "help": help, **rest}})


def parameters_of(policy: Any) -> tuple[Parameter, ...]:
    """The parameters that a policy or its class declares, in their order."""
    return tuple(_described(item) for item in fields(policy) if _KEY in item.metadata)


def check_parameters(policy: Any) -> None:
    """Check every parameter of a policy.

    Raises:
        InvalidInputError: One is of another type or outside its range; the sentence names it.
    """
    for own in parameters_of(policy):
        own.check(getattr(policy, own.name))


def _described(item: Field[Any]) -> Parameter:
    return Parameter(name=item.name, default=item.default, **item.metadata[_KEY])
