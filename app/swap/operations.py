"""Attribute swaps: one prompt with an attribute exchanged, and how far the variants are apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from app.audit.operations import DecodingOptions
from app.shared.commands import Choices
from app.shared.errors import ServiceError
from app.shared.files import decode, read_bytes, write_text
from app.shared.needs import WORK
from app.shared.operations import Json, Progress, Read, checked, command, operation, record
from app.shared.policies import policy_name
from app.shared.settings_json import USUAL, Settings, spans_from_json
from app.shared.terminal import POLICY_KEYS, spans_of
from app.shared.wiring import Services
from app.swap.distributions import COLUMNS, difference_numbers, swap_csv
from app.swap.service import SwapService
from app.swap.types import CONTROL_VIEWS, SwapChain, SwapRequest, SwapResult
from app.swap.variants import words_from
from app.swap.words import finding
from coft_core.step_numbers import step_numbers

SHOWN = 8
"""Candidates whose probabilities are printed."""

MOST_BYTES = 1_000_000
"""Bytes of a file of words."""

OPTIONS = (
    "pronouns", "groups", "group_pronouns", "category", "targets", "roles", "include_original", "max_new_tokens",
    "step", "top", "members", "paraphrases",
)  # fmt: skip
"""What programs say of an exchange."""

DEFAULT = SwapRequest("")


def exchange_from_json(given: Json | None) -> SwapRequest:
    """What takes the place of what, as a request that has no prompt yet.

    Raises:
        ServiceError: There is no option of that name, or one is of the wrong kind.
    """
    named = {name: value for name, value in (given or {}).items() if value is not None}
    if unknown := sorted(set(named) - set(OPTIONS)):
        raise ServiceError(f"There is no option {unknown[0]!r}; the options are {', '.join(OPTIONS)}.")
    step = checked("The option step", int, named.pop("step", 1))
    roles = checked("The option roles", dict[int, str], named.pop("roles", {}))
    members = checked("The option members", dict[str, tuple[str, ...]], named.pop("members", {}))
    return record(
        SwapRequest, named, what="option", prompt="", answer_step=step - 1, roles=tuple(roles.items()),
        members=tuple(members.items()),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SwapOptions(DecodingOptions):
    """Everything that describes the policy and the chains.

    Attributes:
        steps: tokens in each chain
    """

    steps: int = DEFAULT.max_new_tokens


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(part.strip() for part in text.split(","))


def _lists(file: Path | None) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...]]:
    """Words by group, and paraphrases, of a file."""
    return (
        ((), ()) if file is None else words_from(decode(read_bytes(file, file.name, MOST_BYTES), file.name), file.name)
    )


def swap_json(result: SwapResult) -> dict[str, Any]:
    """A comparison: variants with their chains, candidates and distances of the compared token, and notes."""
    labels = [outcome.variant.label for outcome in result.outcomes]
    return {
        "step": result.answer_step + 1,
        "views": list(result.views),
        "variants": [
            {
                **asdict(outcome.variant),
                "masked_like_first": outcome.masked_like_first,
                "vanilla": _chain_json(outcome.vanilla),
                "policy": _chain_json(outcome.policy),
            }
            for outcome in result.outcomes
        ],
        "tokens": [asdict(token) for token in result.tokens],
        "distances": [
            {"first": labels[gap.first], "second": labels[gap.second], "total_variation": dict(gap.distances)}
            for gap in result.gaps
        ],
        "largest": {view: result.largest(view) for view in result.views},
        "mean": {view: result.mean(view) for view in result.views},
        "controls": controls_json(result),
        "notes": list(result.notes),
    }


def controls_json(result: SwapResult) -> dict[str, Any]:
    """What a difference between groups is compared with, and what it is found to be."""
    controls = result.controls
    if controls is None:
        return {"found": "no control", "sentence": finding(result).text}
    return {
        "found": controls.state(controls.headline),
        "sentence": finding(result).text,
        "tokens": list(controls.tokens),
        "groups": [asdict(group) for group in controls.groups],
        "differences": [
            difference_numbers(controls, item, view) for item in controls.differences for view in CONTROL_VIEWS
        ],
    }


def _chain_json(chain: SwapChain) -> dict[str, Any]:
    said = {name: getattr(chain, name) for name in ("text", "finished", "certificate")}
    return {**said, "steps": [step_numbers(step) for step in chain.steps]}


def _write(_: Services, result: SwapResult, folder: Path) -> str:
    """Write tokens.csv, distances.csv, words.csv and groups.csv into this folder."""
    paths = [write_text(folder / f"{table}.csv", swap_csv(result, table)) for table in COLUMNS]
    return f"Tables: {', '.join(str(path) for path in paths)}"


def _print(result: SwapResult) -> None:
    """Variants with their chains, candidates of the compared token, and distances."""
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
            shares = "".join(f"{share:8.3f}" for share in token.probabilities[view])
            print(f"{token.token.strip() or token.token!r:<16.16}{shares}")
    found = finding(result)
    print(f"\n{found.text}")
    for note in (*found.notes, *result.notes):
        print(f"Note: {note}")


@operation(need=WORK, json=swap_json, at_once=1)
def swap_attribute(
    wired: Services,
    prompt: str,
    exchange: Annotated[SwapRequest, Read(exchange_from_json)],
    spans: list[Json] | None = None,
    settings: Settings = USUAL,
    *,
    progress: Progress | None = None,
) -> SwapResult:
    """Exchange an attribute in a prompt and compare what follows, with and without the policy; nothing is stored.

    Args:
        prompt: The text that the model continues.
        exchange: What takes the place of what: pronouns (some of she, he, they), groups (words), group_pronouns
            (one a group, or null), category (family that the groups replace), targets (starts of the spans that
            are replaced), roles (role by start of a pronoun), include_original, max_new_tokens, step (the compared
            token, from 1), top (candidates a variant), members (words by group, in place of the lists' own),
            paraphrases (wordings of the prompt that hold its marked words).
        spans: Sensitive spans; without them the detector finds them.
        settings: Those of start_audit.

    Returns:
        variants (each with its chains, policy and vanilla), step, distances between the variants in the factual,
        the masked and the fused view, and controls: each group's words and wordings, differences with p-values.
    """
    request = replace(exchange, prompt=prompt, settings=settings, spans=spans_from_json(spans))
    return wired[SwapService].compare(request, progress)


@command("swap", json=swap_json, write=_write, text=_print)
def swap(
    wired: Services,
    *,
    prompt: str,
    pronouns: str | None = None,
    groups: str | None = None,
    group_pronouns: str | None = None,
    family: str | None = None,
    without_original: bool = False,
    members: Path | None = None,
    spans: str | None = None,
    answer: int = 1,
    top: int = DEFAULT.top,
    policy: Annotated[str, Choices(POLICY_KEYS), typer.Option("--policy", metavar="NAME")] = "coft",
    options: SwapOptions,
    progress: Progress | None = None,
) -> SwapResult:
    """Exchange an attribute in a prompt and compare what follows.

    Args:
        prompt: the text to continue
        pronouns: pronouns to put in place, e.g. she,he,they
        groups: groups to put in place, separated by commas; default: the first word of each group of --members
        group_pronouns: pronouns that go with each group, or '-' for none
        family: family whose words the groups replace (default: the only one masked)
        without_original: leave out the prompt as typed
        members: CSV file with the columns group and word (words that stand for each group), or paraphrase, or all
        spans: sensitive spans as JSON [[start, end, category], ...]; default: detected
        answer: token that is compared, from 1
        top: candidates of each variant
        policy: method that is compared with vanilla decoding; 'policies' lists them
    """
    lists, paraphrases = _lists(members)
    exchange = SwapRequest(
        prompt=prompt,
        pronouns=_names(pronouns),
        groups=_names(groups) or (() if pronouns else tuple(words[0] for _, words in lists)),
        group_pronouns=tuple(None if name == "-" else name for name in _names(group_pronouns)),
        category=family,
        include_original=not without_original,
        max_new_tokens=options.steps,
        answer_step=answer - 1,
        top=top,
        members=lists,
        paraphrases=paraphrases,
    )
    (settings,) = options.decoding(wired, policy)
    return swap_attribute.call(wired, prompt, exchange, spans_of(spans), settings, progress=progress)
