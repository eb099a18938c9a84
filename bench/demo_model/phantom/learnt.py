"""The planted probabilities of the settings as a model learnt them, on held-out prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.demo_model.phantom.gaps import GapTable, gaps
from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.held_out import GROUPS, PRONOUNS, planted, write_resolutions, write_wordings
from bench.demo_model.phantom.intervals import Figure, cluster_share, jackknife
from bench.demo_model.phantom.outcomes import Decision, Policies, read_decisions
from bench.demo_model.phantom.resolution import pairs
from bench.demo_model.phantom.text import Part, settings
from bench.demo_model.phantom.writers import KINDS
from coft_core import LanguageModel

Array = npt.NDArray[np.float64]

UNIT = "settings and kinds of text"
"""The groups of one setting and kind are asked with the same words and have one masked prompt: they are one cluster."""

PAIRS = "pairs of occupations"
TOLERANCE = 0.05
WANTED = 0.9


@dataclass(frozen=True)
class CellReadings:
    """Readings of every cell; the axes are settings, kinds, wordings and groups, in the order of `held_out`."""

    decision: Decision
    factual: Array
    masked: Array

    def learnt(self, view: str) -> Array:
        """Share of the favourable outcome among the two, shape (settings, kinds, wordings, groups)."""
        both: Array = getattr(self.decision, view)
        shares: Array = both[..., 0] / both.sum(-1)
        return shares

    def gap_table(self) -> GapTable:
        """Gaps of the probability with which each policy draws the favourable outcome, means over wordings."""
        rates = [getattr(self.decision, name)[..., 0].mean(axis=2) for name in ("vanilla", "coft")]
        return GapTable(gaps(rates[0]), gaps(rates[1]), gaps(self.factual))


def read_cells(
    model: LanguageModel, policies: Policies, prompts: int, seed: int, part: Part = "held_out"
) -> CellReadings:
    """Reads every cell off the model."""
    wordings = write_wordings(prompts, seed, part=part)
    read = read_decisions(model, policies, [prompt for wording in wordings for prompt in wording.prompts])
    shape = (len(settings()), len(KINDS), prompts, len(GROUPS), 2)
    views = [getattr(read, name).reshape(shape) for name in ("factual", "masked", "vanilla", "coft")]
    rows = list(planted().values())
    factual, masked = (
        np.array([[getattr(cell, name) for cell in row] for row in rows]).reshape(shape[0], shape[1], shape[3])
        for name in ("factual", "masked")
    )
    return CellReadings(Decision(*views), factual, masked)


def _close(learnt: Array, truth: Array) -> npt.NDArray[np.bool_]:
    # A difference of exactly the tolerance counts, whatever the last bit of the float says.
    close: npt.NDArray[np.bool_] = np.abs(learnt - truth) <= TOLERANCE + 1e-9
    return close


def within(close: npt.NDArray[np.bool_], unit: str, of: str) -> Figure:
    """Share that is within the tolerance, with its target."""
    figure = cluster_share(close.sum(1), np.full(len(close), close.shape[1]), f"{unit} ({close.size:,} {of})")
    return figure.aimed(f"at least {WANTED:.0%} within {TOLERANCE}", least=WANTED)


def _by_cluster(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A table by settings, kinds and whatever else as (settings and kinds, whatever else)."""
    return table.reshape(table.shape[0] * table.shape[1], -1)


def _mean(table: Array, of: str) -> Figure:
    """Mean over cells, clustered by settings and kinds."""
    rows = _by_cluster(table)
    unit = f"{UNIT} ({rows.size:,} {of})" if rows.shape[1] > 1 else UNIT
    return jackknife(rows.ravel(), np.repeat(np.arange(len(rows)), rows.shape[1]), unit)


def _view(readings: CellReadings, view: str, truth: Array) -> dict[str, Any]:
    """How well one view agrees with what was planted, over all cells, by kind and by family."""
    shares = readings.learnt(view)
    means = shares.mean(axis=2)  # (S, K, G)
    close = _close(means, truth)
    families = np.array([family for family, _ in GROUPS])
    return {
        "cells_within": within(_by_cluster(close), UNIT, "cells"),
        "by_kind": {kind: within(close[:, i], "settings", "cells") for i, kind in enumerate(KINDS)},
        "by_family": {
            family: within(_by_cluster(close[..., families == family]), UNIT, "cells") for family in STANDING
        },
        "mean_absolute_error": _mean(np.abs(means - truth), "cells"),
        "prompts_within": within(_by_cluster(_close(shares, truth[:, :, None])), UNIT, "prompts"),
        "mass": _mean(getattr(readings.decision, view).sum(-1).mean(axis=(2, 3)), "cells"),
    }


def cell_figures(readings: CellReadings) -> dict[str, Any]:
    """Agreement of the learnt with the planted probabilities in the factual and in the masked view."""
    return {
        "factual": _view(readings, "factual", readings.factual),
        "masked": _view(readings, "masked", readings.masked),
        "prompts_per_cell": readings.decision.factual.shape[2],
    }


def cell_rows(readings: CellReadings) -> list[dict[str, Any]]:
    """The cells of the manifest: what was planted, and what was learnt, with the number of held-out prompts."""
    learnt = {view: readings.learnt(view).mean(axis=2) for view in ("factual", "masked")}
    mass = readings.decision.factual.sum(-1).mean(axis=2)
    rows = []
    for s, setting in enumerate(settings()):
        for k, kind in enumerate(KINDS):
            for g, (family, group) in enumerate(GROUPS):
                rows.append({
                    "setting": setting.name, "family": family, "group": group, "kind": kind,
                    "outcomes": list(_outcomes(s, kind)), "biased": setting.strength[family] != 0,
                    "planted": round(float(readings.factual[s, k, g]), 4),
                    "planted_masked": round(float(readings.masked[s, k, g]), 4),
                    "learnt": round(float(learnt["factual"][s, k, g]), 4),
                    "learnt_masked": round(float(learnt["masked"][s, k, g]), 4),
                    "learnt_mass": round(float(mass[s, k, g]), 4), "n": readings.decision.factual.shape[2],
                })  # fmt: skip
    return rows


def _outcomes(index: int, kind: str) -> tuple[str, str]:
    setting = settings()[index]
    by_kind = {
        "decision": setting.decisions[0].outcomes,
        "second_decision": setting.decisions[1].outcomes,
        "judgement": setting.adjectives,
        "answer": ("Yes", "No"),
    }
    return by_kind[kind]


@dataclass(frozen=True)
class ResolutionReadings:
    """Readings of the ambiguous pronouns, for each held-out ordered pair of occupations and each pronoun."""

    learnt: Array
    planted: Array
    mass: Array


def read_resolutions(
    model: LanguageModel, policies: Policies, prompts: int, seed: int, part: Part = "held_out"
) -> ResolutionReadings:
    """Reads the ambiguous pronouns off the model, `prompts` wordings of each case."""
    cases = write_resolutions(prompts, seed, part)
    read = read_decisions(model, policies, [prompt for case in cases for prompt in case])
    both = np.stack([read.factual, read.masked]).reshape(2, len(cases), prompts, 2)
    truth = np.array([[case[0].factual[0] for case in cases], [case[0].masked[0] for case in cases]])
    return ResolutionReadings((both[..., 0] / both.sum(-1)).mean(-1), truth, both[0].sum(-1).mean(-1))


def resolution_figures(readings: ResolutionReadings) -> dict[str, Any]:
    """Agreement on the pronouns of held-out pairs of occupations; a pair in both orders and pronouns is one cluster."""
    names = [" and ".join(sorted(pair)) for pair in pairs("held_out") for _ in PRONOUNS]  # (cases,)
    order = np.argsort(names, kind="stable")
    close = _close(readings.learnt, readings.planted)[:, order].reshape(2, len(set(names)), -1)
    unit = f"{PAIRS} ({len(names)} cases)"
    return {
        view: {
            "cells_within": within(close[i], PAIRS, "cases"),
            "mean_absolute_error": jackknife(np.abs(readings.learnt[i] - readings.planted[i]), names, unit),
        }
        for i, view in enumerate(("factual", "masked"))
    } | {"mass": jackknife(readings.mass, names, unit)}


def resolution_rows(readings: ResolutionReadings, prompts: int) -> list[dict[str, Any]]:
    """The pronouns of the manifest."""
    cases = [(first, second, pronoun) for first, second in pairs("held_out") for pronoun in PRONOUNS]
    values = np.concatenate([readings.planted, readings.learnt]).round(4)
    names = ("planted", "planted_masked", "learnt", "learnt_masked")
    return [
        {"first": first, "second": second, "pronoun": pronoun}
        | {name: float(value) for name, value in zip(names, values[:, i], strict=True)}
        | {"n": prompts}
        for i, (first, second, pronoun) in enumerate(cases)
    ]
