"""Options that several commands share, and how they are read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from app.bootstrap import Services
from app.services.detection import families_from_text
from app.services.errors import ServiceError
from app.services.known_policies import KNOWN_POLICIES
from app.services.prompting import FORMATS
from app.services.views import FAMILIES, AuditSettings, replace
from app.settings import Settings

EMBEDDED = "embedded"
LAYOUTS = ("joint", "factorized")
POLICY_KEYS = tuple(item.key for item in KNOWN_POLICIES)


def add_policy_options(command: Any) -> None:
    """Everything that describes a decoding policy."""
    defaults = AuditSettings()
    command.add_argument("--model", default=Settings().model, help="'demo', a hub id, or a folder")
    command.add_argument("--lam", type=float, default=defaults.lam, help="fusion weight, 0 to 1 (default: 0.6)")
    command.add_argument("--alpha", type=float, default=defaults.alpha, help="risk level (default: 0.1)")
    command.add_argument("--temperature", type=float, default=defaults.temperature)
    command.add_argument("--top-p", type=float, default=defaults.top_p)
    command.add_argument("--top-k", type=int, default=defaults.top_k, help="0 is off")
    command.add_argument("--seed", type=int, default=defaults.seed)
    _add_prompt_options(command)
    _add_mask_options(command)
    add_json(command)


def add_parameters(command: Any) -> None:
    """A policy's own parameters."""
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="[POLICY.]NAME=VALUE",
        help="a parameter of the policy, as 'policies' lists them; may be given several times",
    )
    command.add_argument("--tuned", action="store_true", help="take the strength that the newest fitting tuning found")


def add_json(command: Any) -> None:
    """The choice of JSON in place of text."""
    command.add_argument("--json", action="store_true", help="print JSON")


def layout_and_families(options: argparse.Namespace) -> tuple[str, tuple[str, ...] | None]:
    """Mask layout and masked families; None takes the program's own families.

    Raises:
        ServiceError: There is no such mask, or families are named twice.
        InvalidInputError: There is no such family.
    """
    named = None if options.mask_families is None else families_from_text(options.mask_families)
    if options.mask in LAYOUTS:
        return str(options.mask), named
    if options.mask not in FAMILIES:
        raise ServiceError(
            f"There is no mask {options.mask!r}; choose 'joint', 'factorized' or one family: {', '.join(FAMILIES)}."
        )
    if named is not None:
        raise ServiceError("--mask names one family and --mask-families others; give one of them.")
    return "joint", (str(options.mask),)


def list_id(wired: Services, options: argparse.Namespace) -> int | None:
    """The word list that was named."""
    return None if options.list is None else wired.user_lists.named(options.list).summary.id


def calibration_id(wired: Services, text: str, model: str | None = None) -> int:
    """A calibration by its number, or the embedded one.

    Args:
        wired: The services.
        text: A number, or ``"embedded"``.
        model: The embedded calibration of this model; None takes any.

    Raises:
        ServiceError: It is neither, or no calibration is embedded.
    """
    if text.isdigit():
        return int(text)
    if text != EMBEDDED:
        raise ServiceError(
            f"{text!r} is no calibration; give its number from 'calibrations list', '{EMBEDDED}' or 'none'."
        )
    embedded = [item for item in wired.calibrations.list(model) if item.embedded]
    if not embedded:
        raise ServiceError("No calibration is embedded for this model; give the number of one.")
    return embedded[0].id


def masked(settings: AuditSettings, wired: Services, options: argparse.Namespace) -> AuditSettings:
    """The settings with the masking that the options ask for."""
    layout, families = layout_and_families(options)
    return replace(
        settings,
        sentinel=options.sentinel,
        mask_layout=layout,
        mask_mode=options.mask_mode,
        mask_hint=options.mask_hint,
        whitelist=tuple(options.whitelist),
        masked_families=families,
        user_list_id=list_id(wired, options),
        prompt_format=options.prompt_format,
        chat_date=options.chat_date,
    )


def show(options: argparse.Namespace, data: Any, as_text: Callable[[], None]) -> None:
    """Print JSON if it was asked for, else text."""
    if options.json:
        print(json.dumps(data, ensure_ascii=False, allow_nan=False))
    else:
        as_text()


def _add_prompt_options(command: Any) -> None:
    command.add_argument(
        "--prompt-format",
        choices=FORMATS,
        default=AuditSettings().prompt_format,
        help="'chat' puts prompts into the model's chat template, 'plain' gives the text alone, 'auto' (the default) "
        "takes the template where the model has one",
    )
    command.add_argument(
        "--no-chat-template", action="store_const", const="plain", dest="prompt_format", help="--prompt-format plain"
    )
    command.add_argument(
        "--chat-date",
        metavar="DAY",
        help="day as of which a chat template that prints the date is rendered, such as 2026-11-21 (default: today)",
    )


def _add_mask_options(command: Any) -> None:
    command.add_argument(
        "--mask",
        default="joint",
        metavar="LAYOUT",
        help="'joint' (one masked branch, the default), 'factorized' (one for each attribute family), or one family "
        "that alone is masked",
    )
    command.add_argument("--mask-mode", choices=("hard", "soft"), default="hard", help="sentinels, or a neutral hint")
    command.add_argument("--mask-hint", metavar="TEXT", help="hint of the soft mask (default: 'a person')")
    command.add_argument(
        "--sentinel",
        help="one token that stands for masked ones, by text or name; default: chosen and told",
    )
    command.add_argument(
        "--whitelist",
        action="append",
        default=[],
        metavar="TERM",
        help="a term that is never masked; may be given several times",
    )
    command.add_argument(
        "--mask-families",
        metavar="NAMES",
        help="attribute families whose spans are masked, others being suggested: names separated by commas, "
        "'protected' (all but proxies, whose spans are masked only in texts that say no attribute outright) or 'all' "
        "(default: COFT_MASK_FAMILIES or 'protected')",
    )
    command.add_argument("--list", metavar="NAME", help="word list whose terms win over what is detected")
