"""The command ``swap``: one prompt with an attribute exchanged, and how far the variants are apart."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.bootstrap import Services, services
from app.settings import Settings
from app.shared.errors import ServiceError
from app.shared.events import offer, shown
from app.shared.files import write_text
from app.shared.policies import policy_name
from app.shared.prompt_words import spans_from
from app.shared.settings_json import settings_from_json
from app.shared.terminal import (
    EMBEDDED,
    POLICY_KEYS,
    add_parameters,
    add_policy_options,
    settings_from_options,
    show,
    spans_of,
)
from app.swap.distributions import swap_csv
from app.swap.types import SwapRequest, SwapResult
from app.swap.words import swap_json

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
    return SwapRequest(prompt=prompt, settings=settings_from_json(settings), spans=spans, **options)


def swap_endpoints(services: Services) -> None:
    """Register the endpoint; it runs two chains a variant, so one at a time."""
    offer(SwapEndpoint(services).swap_attribute, at_once=1)


SHOWN = 8


def add_swap(commands: Any) -> None:
    """Add the command."""
    usual = SwapRequest("")
    command = commands.add_parser("swap", help="exchange an attribute in a prompt and compare what follows")
    command.add_argument("--prompt", required=True, help="the text to continue")
    command.add_argument("--pronouns", type=_names, default=(), help="pronouns to put in place, e.g. she,he,they")
    command.add_argument("--groups", type=_names, default=(), help="groups to put in place, separated by commas")
    command.add_argument(
        "--group-pronouns", type=_names, default=(), help="pronouns that go with each group, or '-' for none"
    )
    command.add_argument("--family", help="family whose words the groups replace (default: the only one masked)")
    command.add_argument("--without-original", action="store_true", help="leave out the prompt as typed")
    command.add_argument("--spans", help="sensitive spans as JSON [[start, end, category], ...]; default: detected")
    command.add_argument("--steps", type=int, default=usual.max_new_tokens, help="tokens in each chain (default: 12)")
    command.add_argument("--answer", type=int, default=1, help="token that is compared, from 1 (default: 1)")
    command.add_argument("--top", type=int, default=usual.top, help="candidates of each variant (default: 8)")
    command.add_argument("--out", type=Path, help="write tokens.csv and distances.csv into this folder")
    command.add_argument(
        "--policy", choices=POLICY_KEYS, default="coft", metavar="NAME",
        help=f"{', '.join(POLICY_KEYS)} (default: coft)",
    )  # fmt: skip
    add_parameters(command)
    command.add_argument(
        "--calibration", default=EMBEDDED, help=f"number of a calibration, '{EMBEDDED}' (default) or 'none'"
    )
    command.add_argument("--group", help="group whose own thresholds are used (default: all contexts together)")
    command.add_argument("--proceed-uncertified", action="store_true", help="use a calibration of another policy")
    command.add_argument("--greedy", action="store_true", help="take the likeliest certified token")
    add_policy_options(command)
    command.set_defaults(run=_swap)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _swap(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        request = SwapRequest(
            prompt=options.prompt,
            settings=settings_from_options(wired, options),
            spans=None if options.spans is None else spans_of(options.spans),
            pronouns=options.pronouns,
            groups=options.groups,
            group_pronouns=tuple(None if name == "-" else name for name in options.group_pronouns),
            category=options.family,
            include_original=not options.without_original,
            max_new_tokens=options.steps,
            answer_step=options.answer - 1,
            top=options.top,
        )
        result = wired.swaps.compare(request, None if options.json else _tell)
    if options.out:
        for table in ("tokens", "distances"):
            write_text(options.out / f"{table}.csv", swap_csv(result, table))
    show(options, swap_json(result), lambda: print_swap(result, options.out))


def _tell(share: float, label: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{share:4.0%}  {label:<40.40}", end="", file=sys.stderr, flush=True)


def print_swap(result: SwapResult, out: Path | None) -> None:
    """Variants with their chains, candidates of the compared token, and distances."""
    if sys.stderr.isatty():
        print("\r" + " " * 46 + "\r", end="", file=sys.stderr)
    for number, outcome in enumerate(result.outcomes, 1):
        variant = outcome.variant
        print(f"{number}  {variant.label}: {variant.prompt}")
        print(f"   vanilla: {outcome.vanilla.text.strip()!r}")
        name = policy_name(outcome.policy.start.settings.policy)
        print(f"   {name} ({outcome.policy.certificate}): {outcome.policy.text.strip()!r}")
        for note in variant.notes:
            print(f"   Note: {note}")
    numbers = range(1, len(result.outcomes) + 1)
    for view in result.views:
        print(f"\nToken {result.answer_step + 1}, {view}: total variation up to {result.largest(view):.3f}, "
              f"mean {result.mean(view):.3f}")  # fmt: skip
        print(f"{'':<16}" + "".join(f"{number:>8}" for number in numbers))
        for token in result.tokens[:SHOWN]:
            print(f"{token.token.strip() or token.token!r:<16.16}" + "".join(f"{p:8.3f}" for p in token.of(view)))
    print()
    for note in result.notes:
        print(f"Note: {note}")
    if out:
        print(f"Tables: {out / 'tokens.csv'}, {out / 'distances.csv'}")
