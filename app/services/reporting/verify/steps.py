"""Comparing a stored step with the same step computed again, number by number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from app.services.reporting.verify.findings import Findings
from app.services.views import Candidate, Diagnostics, Step

NUMBERS = ("log_p_factual", "log_p_masked", "log_p_fused", "log_tau", "certified_mass")
FLAGS = ("certified", "fallback", "forced", "state")
_UNBOUNDED = ("tv_bound", "kl_fused_masked", "kl_fused_factual")
"""Numbers that can be large, so that they are compared relative to their size."""
_LATER = ("kl_fused_factual", "tv_fused_factual")
"""Numbers that steps stored by earlier versions do not have."""


def compare_steps(found: Findings, place: str, stated: Step, fresh: Step, tolerance: float, boundary: int = 0) -> None:
    """Expect a stored step to be the one that was computed again.

    Args:
        found: Collects what does not fit.
        place: Where the step stands, in words.
        stated: The stored step.
        fresh: The computed one, with the same emitted token.
        tolerance: Allowed difference of logarithms, masses and diagnostics.
        boundary: Tokens so near to the threshold that they may fall to either side of it.
    """
    found.same(place, "the emitted token", stated.token_id, fresh.token_id)
    found.same(place, "the policy's token", stated.policy_token_id, fresh.policy_token_id)
    for name in NUMBERS:
        found.near(place, name, getattr(stated, name), getattr(fresh, name), tolerance)
    for name in FLAGS:
        near = boundary and name in ("certified", "fallback")
        found.expect(
            bool(near) or getattr(stated, name) == getattr(fresh, name),
            f"{place}: {name} is stated as {getattr(stated, name)} and computed as {getattr(fresh, name)}.",
        )
    low = stated.set_size if stated.set_size_low is None else stated.set_size_low
    high = stated.set_size if stated.set_size_high is None else stated.set_size_high
    sizes_fit = low - boundary <= fresh.set_size <= high + boundary
    found.expect(sizes_fit, f"{place}: the set size is stated as {stated.set_size} and computed as {fresh.set_size}.")
    for field in fields(Diagnostics):
        own, other = getattr(stated.diagnostics, field.name), getattr(fresh.diagnostics, field.name)
        if (boundary and field.name == "tv_on_set") or (field.name in _LATER and own is None):
            continue
        size = max(1.0, abs(other or 0.0)) if field.name in _UNBOUNDED else 1.0
        found.near(place, field.name, own, other, tolerance * size)
    _compare_candidates(found, place, stated, fresh, tolerance, boundary)
    listed = {part.family: part for part in fresh.families}
    found.same(place, "the list of families", [part.family for part in stated.families], list(listed))
    for part in stated.families:
        if part.family in listed:
            other = listed[part.family]
            for name in ("log_p_masked", "log_joint", "log_tau"):
                what = f"{name} of the family {part.family}"
                found.near(place, what, getattr(part, name), getattr(other, name), tolerance)
            if not boundary:
                what = f"the certificate of the family {part.family}"
                found.same(place, what, (part.certified, part.state), (other.certified, other.state))


def compare_texts(found: Findings, place: str, stated: Step, text_of: Callable[[int], str]) -> None:
    """Expect every token of a stored step to read as the tokenizer decodes it.

    Args:
        found: Collects what does not fit.
        place: Where the step stands, in words.
        stated: The stored step.
        text_of: The tokenizer's text of a token.
    """
    pairs = [(stated.token_id, stated.token), (stated.policy_token_id, stated.policy_token)]
    for token_id, text in dict.fromkeys(pairs + [(row.token_id, row.token) for row in stated.candidates]):
        found.same(place, f"the text of the token {token_id}", text, text_of(token_id))


def _compare_candidates(
    found: Findings, place: str, stated: Step, fresh: Step, tolerance: float, boundary: int
) -> None:
    rows, listed = ({row.token_id: row for row in step.candidates} for step in (fresh, stated))
    found.same(place, "the number of candidates", len(listed), len(rows))
    left_out = [_likeliest(row) for token_id, row in rows.items() if token_id not in listed]
    for row in stated.candidates:
        other = rows.get(row.token_id)
        what = f"of {row.token!r} ({row.token_id})"
        if other is None:
            # Which of two equally likely tokens ends the list may follow the computer; the emitted one is always there.
            tied = any(abs(_likeliest(row) - likelihood) <= tolerance for likelihood in left_out)
            found.expect(tied, f"{place}: a row {what} is listed among the likeliest tokens, and is none of them.")
            continue
        for view in ("log_p_factual", "log_p_masked", "log_p_fused"):
            found.near(place, f"{view} {what}", getattr(row, view), getattr(other, view), tolerance)
        if not boundary:
            found.same(place, f"the certificate {what}", row.certified, other.certified)
            found.same(place, f"the families that refuse {what[3:]}", row.refused_by, other.refused_by)


def _likeliest(row: Candidate) -> float:
    """By which candidates are listed."""
    return max(row.log_p_factual, row.log_p_masked, row.log_p_fused)
