"""An earlier check of the same prompts, with which a check is compared item by item."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError
from scipy.stats import binomtest, bootstrap

from app.gate.judge import Item, means_of
from app.gate.run import Change, Checked
from app.shared.errors import ServiceError


def read_baseline(path: Path, prompts: str, suites: Mapping[str, str]) -> tuple[Item, ...]:
    """The items of an earlier check, from its JSON; prompts and suites have to be the same by their digests."""
    try:
        content = json.loads(path.read_text("utf-8"))
        items, before = TypeAdapter(tuple[Item, ...]).validate_python(content["items"]), content["prompts_digest"]
        read = {str(one["key"]): one["digest"] for one in content["suites"]}
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ServiceError(f"{path.name} is not the JSON of a check; write it with: check FILE --json") from error
    if before != prompts:
        raise ServiceError(f"{path.name} is a check of other prompts; compare checks of the same file.")
    if others := [key for key in suites if read.get(key, suites[key]) != suites[key]]:
        raise ServiceError(f"{path.name} is a check of other items of {others[0]}; compare checks of the same files.")
    return items


def changes(checked: Checked, before: Sequence[Item]) -> Iterator[Change]:
    """How each group's rate of each outcome has changed."""
    for outcome in dict.fromkeys(item.outcome for item in checked.items):
        new, old = means_of(checked.items, outcome), means_of(before, outcome)
        for group in dict.fromkeys(item.group for item in checked.items if item.outcome == outcome):
            pairs = [(old[c][group], own[group]) for c, own in new.items() if group in own and group in old.get(c, {})]
            if pairs:
                yield _change(outcome, group, np.array(pairs))


def _change(outcome: str, group: str, pairs: npt.NDArray[np.float64]) -> Change:
    change = pairs[:, 1] - pairs[:, 0]  # (C,)
    if np.ptp(change):
        found = bootstrap((change,), np.mean, method="percentile", rng=0).confidence_interval
        low, high = float(found.low), float(found.high)
    else:
        low = high = float(change.mean())
    p_value = None
    if np.isin(pairs, (0.0, 1.0)).all():
        gained, lost = int((change > 0).sum()), int((change < 0).sum())
        p_value = float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return Change(outcome, group, len(pairs), float(change.mean()), low, high, p_value)
