"""The command ``swap``: one prompt with an attribute exchanged, and how far the variants are apart."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from app.bootstrap import services
from app.cli_options import EMBEDDED, POLICY_KEYS, add_parameters, add_policy_options, show
from app.cli_settings import audit_settings, spans_of
from app.services.csv_files import write_text
from app.services.policy_words import policy_name
from app.services.swap.plain import swap_json
from app.services.swap.tables import swap_csv
from app.services.views.swaps import SwapRequest, SwapResult
from app.settings import Settings

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
            settings=audit_settings(wired, options),
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
