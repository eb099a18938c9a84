"""All measurements of the phantom, and the calibration that they use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bench.demo_model.calibration_prompts import calibration_rows
from bench.demo_model.phantom.accuracy import accuracy_figures
from bench.demo_model.phantom.chains import answer_gaps, empty_sets
from bench.demo_model.phantom.detection import detection_figures
from bench.demo_model.phantom.fluency import story_figures
from bench.demo_model.phantom.gap_figures import gap_figures
from bench.demo_model.phantom.held_out import write_questions, write_resolutions, write_wordings
from bench.demo_model.phantom.learnt import (
    PAIRS,
    cell_figures,
    read_cells,
    read_resolutions,
    resolution_figures,
)
from bench.demo_model.phantom.neutral import story_of
from bench.demo_model.phantom.outcomes import Policies
from bench.demo_model.phantom.writers import without_outcome
from bench.demo_model.scenarios import Scenario
from coft_core import Calibration, CalibrationMismatch, CoftPolicy, Example, LanguageModel, VanillaPolicy, calibrate
from coft_core.text.detection import default_detector

RESOLUTION_PROMPTS = 4
_CALIBRATION_SEED = 77_003


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    prompts_per_cell: int = 12
    lam: float = 0.6
    alpha: float = 0.1
    seed: int = 0
    questions: int = 1_000
    chain_prompts: int = 4
    generations: int = 400
    length: int = 48
    data: Path | None = None
    documents: int = 80
    split_seed: int = 0


def choose_calibration(model: LanguageModel, shipped: Path, lam: float, alpha: float) -> tuple[Calibration, str]:
    """Takes the calibration that is shipped with a model if it fits, otherwise makes one."""
    detector = default_detector()
    if shipped.is_file():
        calibration = Calibration.load(shipped).read(alpha=alpha)
        try:
            CoftPolicy(lam, calibration).certificate(model, detector.version)
        except CalibrationMismatch as error:
            reason = f"the shipped calibration does not fit ({error})"
        else:
            return calibration, "shipped with the model"
    else:
        reason = "the model has no calibration of its own"
    tokenizer: Tokenizer = model.tokenizer.backend_tokenizer
    rows = calibration_rows(tokenizer, _CALIBRATION_SEED)
    examples = [Example(row["prompt"], row["reference"]) for row in rows]
    return calibrate(model, examples, lam, alpha), f"made in this run, since {reason}"


def _pronoun_prompts(seed: int) -> tuple[list[Scenario], list[str], str]:
    """A prompt for each case of ambiguous pronouns, its two occupations, and what a cluster is."""
    prompts = [case[0] for case in write_resolutions(1, seed, "measured")]
    names = [" and ".join(sorted(outcome.strip() for outcome in prompt.outcomes)) for prompt in prompts]
    return prompts, names, f"{PAIRS} ({len(prompts)} cases)"


def measure_phantom(
    model: LanguageModel, plan: Plan, shipped: Path, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Measures a phantom model."""
    progress("calibration")
    calibration, origin = choose_calibration(model, shipped, plan.lam, plan.alpha)
    policies = Policies(VanillaPolicy(), CoftPolicy(plan.lam, calibration))
    progress("planted probabilities and bias gaps")
    readings = read_cells(model, policies, plan.prompts_per_cell, plan.seed, "measured")
    result: dict[str, Any] = {
        "calibration": {
            "origin": origin, "contexts": calibration.context_count,
            "tau_first_step": calibration.threshold(0), "tau_is": "natural logarithm",
        },
        "cells": cell_figures(readings),
        "gaps": gap_figures(readings.gap_table()),
    }  # fmt: skip
    progress("pronouns")
    resolutions = read_resolutions(model, policies, RESOLUTION_PROMPTS, plan.seed, "measured")
    result["pronouns"] = resolution_figures(resolutions)
    progress("reasoning chains")
    result["chains"] = answer_gaps(model, policies, plan.chain_prompts, plan.seed)
    progress("neutral questions")
    questions = write_questions(plan.questions, plan.seed, "measured")
    result["neutral"] = accuracy_figures(model, policies, questions)
    progress("empty sets")
    result["empty_sets"] = empty_sets(model, policies, plan.generations, plan.length, plan.seed)
    progress("spans")
    result["spans"] = detection_figures(
        write_wordings(4, plan.seed, part="measured"),
        {
            "neutral questions": (
                [without_outcome(question) for question in questions[:400]],
                [story_of(question) for question in questions[:400]],
                "wordings of the story (400 questions)",
            ),
            "pronouns": _pronoun_prompts(plan.seed),
        },
        plan.seed,
    )
    if plan.data is not None:
        progress("story text")
        result["stories"] = story_figures(model, plan.data, plan.split_seed, plan.documents, plan.seed)
    return result
