"""The command ``compare``: stored audits beside each other."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.bootstrap import services
from app.cli_options import add_json, show
from app.services.comparing.plain import comparison_json
from app.services.comparing.tables import comparison_csv
from app.services.csv_files import write_text
from app.services.errors import ServiceError
from app.services.policy_words import policy_name
from app.services.views.batches import MeanInterval
from app.services.views.comparisons import ChainSummary, Comparison
from app.settings import Settings

WIDTH = 18


def add_compare(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser("compare", help="put stored audits, or branches of one, beside each other")
    command.add_argument(
        "sessions", nargs="+", metavar="SESSION[:BRANCH]", help="two or more; the others are compared with the first"
    )
    command.add_argument("--out", type=Path, help="write the aligned tokens as CSV to this file")
    add_json(command)
    command.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    chosen = [_chain(text) for text in options.sessions]
    with services(Settings()) as wired:
        found = wired.comparisons.compare([session for session, _ in chosen], [branch for _, branch in chosen])
    show_comparison(options, found)


def show_comparison(options: argparse.Namespace, found: Comparison) -> None:
    """Print a comparison as text or JSON, and write its table where ``--out`` names a file."""
    if options.out:
        write_text(options.out, comparison_csv(found))
    show(options, comparison_json(found), lambda: print_comparison(found, options.out))


def print_comparison(found: Comparison, out: Path | None) -> None:
    """The chains, where they part, and their tokens row by row; ``*`` marks what differs, ``-`` a gap."""
    for place, chain in enumerate(found.chains, 1):
        print(f"{place}: session {chain.session_id}, {chain.name}; {policy_name(chain.policy)}; {chain.certificate}")
        print(f"   {_figures(chain)}")
        print(f"   {_memory(chain)}")
    for pair in found.pairs:
        print(f"1 and {pair.other + 1}: {pair.sentence}")
        differ = ", ".join(f"{name} {first} and {other}" for name, first, other in pair.differences)
        print(f"   Settings that differ: {differ or 'none'}")
    for note in found.notes:
        print(f"Note: {note}")
    print(f"\n{'row':>4}  " + "".join(f"{place:<{WIDTH}}" for place in range(1, len(found.chains) + 1)))
    for number, row in enumerate(found.rows, 1):
        cells = [_cell(chain, step, differs)
                 for chain, step, differs in zip(found.chains, row.steps, row.differs, strict=True)]  # fmt: skip
        print(f"{number:>4}{' ' if row.same else '*'} {''.join(cells)}".rstrip())
    if out:
        print(f"\nTable: {out}")


def _figures(chain: ChainSummary) -> str:
    parts = [f"{len(chain.steps)} tokens"]
    if chain.mean_log_ratio is not None:
        parts.append(f"mean sensitivity {chain.mean_log_ratio:.3f}")
    counts = (("certified", chain.certified), ("fallbacks", chain.fallbacks), ("overruled", chain.overruled))
    parts += [f"{count} {name}" for name, count in counts if count is not None]
    if chain.mean_tv_factual is not None and chain.mean_kl_factual is not None:
        parts.append(f"from vanilla TV {chain.mean_tv_factual:.4f}, KL {chain.mean_kl_factual:.4f} nats")
    elif chain.own_model:
        parts.append("a checkpoint of its own, so no divergence from vanilla")
    if chain.seconds_per_token is not None:
        parts.append(f"{1000 * chain.seconds_per_token:.1f} ms a token")
    return ", ".join(parts)


def _memory(chain: ChainSummary) -> str:
    """Bytes as computed from the models' shapes, and as measured where the device counts them."""
    own = chain.footprint
    if own is None:
        return "memory not known"
    parts = [f"{len(own.prompt_tokens)} branches"]
    if chain.key_value_bytes is not None:
        parts.append(f"keys and values {megabytes(chain.key_value_bytes)} (computed)")
    parts += [f"further models {megabytes(own.further_bytes)} (weights)"] if own.further_bytes else []
    parts += [f"measured peak {megabytes(chain.peak_bytes)}"] if chain.peak_bytes else []
    return ", ".join(parts)


def megabytes(size: int) -> str:
    """A number of bytes in megabytes (10^6)."""
    return f"{size / 1e6:,.1f} MB"


def interval(item: MeanInterval, factor: float, digits: int) -> str:
    """A mean with its 95 % interval and the number of contexts, in the unit that the factor gives."""
    if item.mean is None:
        return "-"
    within = (
        ""
        if item.low is None or item.high is None
        else (f" ({factor * item.low:.{digits}f} to {factor * item.high:.{digits}f})")
    )
    left = f", {item.left_out} left out" if item.left_out else ""
    return f"{factor * item.mean:.{digits}f}{within}, n = {item.contexts}{left}"


def _cell(chain: ChainSummary, step: int | None, differs: bool) -> str:
    text = "-" if step is None else chain.steps[step].token.replace("\n", "\\n").replace(" ", "·", 1)
    return f"{'*' if differs and step is not None else ' '}{text:<{WIDTH - 1}}"


def _chain(text: str) -> tuple[int, int | None]:
    session, _, branch = text.partition(":")
    if not session.isdigit() or (branch and not branch.isdigit()):
        raise ServiceError(f"{text!r} is no session; give its number, or SESSION:BRANCH for one of its branches.")
    return int(session), int(branch) if branch else None
