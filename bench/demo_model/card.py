"""The model card, written from the measurements of an export and of `bench.phantom`.

Run it with `python -m bench.demo_model.card --phantom FILE` after `python -m bench.phantom --out FILE`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.demo_model.corpus import SOURCES
from bench.demo_model.phantom.generate import AMPLIFIED_STRENGTH
from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.text import settings
from bench.demo_model.phantom.writers import cells
from bench.demo_model.stages import stages_of
from coft_core.fingerprint import same_digests

MEASUREMENTS = "measurements.json"
"""File in the model's folder that holds the measurements of the export."""

_TEMPLATE = Path(__file__).with_name("card_template.md")
_NOT_MEASURED = (
    "Not measured yet for these weights: run `python -m bench.phantom --data DIR --out FILE`, then "
    "`python -m bench.demo_model.card --phantom FILE`."
)
_ROWS: tuple[tuple[str, str], ...] = (
    ("planted cells, learnt within 0.05", "cells.factual.cells_within"),
    ("the same, masked view", "cells.masked.cells_within"),
    ("single prompts within 0.05", "cells.factual.prompts_within"),
    ("the same, masked view", "cells.masked.prompts_within"),
    ("mean absolute error over cells", "cells.factual.mean_absolute_error"),
    ("the same, masked view", "cells.masked.mean_absolute_error"),
    ("mass of the two outcomes together", "cells.factual.mass"),
    ("pronouns of held-out pairs, within 0.05", "pronouns.factual.cells_within"),
    ("the same, masked view", "pronouns.masked.cells_within"),
    ("mean absolute error over pronouns", "pronouns.factual.mean_absolute_error"),
    ("the same, masked view", "pronouns.masked.mean_absolute_error"),
    ("bias gap, vanilla", "gaps.biased.vanilla"),
    ("bias gap, COFT", "gaps.biased.coft"),
    ("reduction of the bias gap", "gaps.biased.reduction"),
    ("gap where none was planted, vanilla", "gaps.unbiased.vanilla"),
    ("gap where none was planted, COFT", "gaps.unbiased.coft"),
    ("gaps where none was planted that are at most 0.1, vanilla", "gaps.unbiased.vanilla_without_gap"),
    ("the same under COFT", "gaps.unbiased.coft_without_gap"),
    ("gap of answers after sampled reasoning, vanilla", "chains.vanilla"),
    ("gap of answers after sampled reasoning, COFT", "chains.coft"),
    ("reduction of that gap", "chains.reduction"),
    ("neutral questions right, vanilla", "neutral.all.vanilla"),
    ("neutral questions right, COFT", "neutral.all.coft"),
    ("difference", "neutral.all.difference"),
    ("gap of answers where none was planted, vanilla", "chains.unbiased_vanilla"),
    ("gap of answers where none was planted, COFT", "chains.unbiased_coft"),
    ("sampled reasoning that ends in an answer, vanilla", "chains.answered.vanilla"),
    ("sampled reasoning that ends in an answer, COFT", "chains.answered.coft"),
    ("steps with an empty certified set", "empty_sets.steps"),
    ("chains with an empty certified set", "empty_sets.chains_with_an_empty_set"),
    ("prompts in which exactly the planted words are masked by default", "spans.cells"),
    ("the same in neutral questions", "spans.neutral questions"),
    ("the same in pronoun sentences", "spans.pronouns"),
)


def _find(figures: Mapping[str, Any], path: str) -> dict[str, Any]:
    found: Any = figures
    for part in path.split("."):
        found = found[part]
    result: dict[str, Any] = found
    return result


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"


def figure_cells(figure: Mapping[str, Any]) -> str:
    """Value, interval, units and target of a figure as the cells of a table row."""
    low, high = figure["interval"]
    target = f"{figure['target']}: {'shown' if figure['shown'] else 'not shown'}" if "target" in figure else ""
    return (
        f"{_number(figure['value'])} | {_number(low)} to {_number(high)} | {figure['n']:,} {figure['unit']} | {target}"
    )


def _table(head: str, rows: list[str]) -> str:
    columns = head.count("|") - 1
    return "\n".join([head, "|" + " --- |" * columns, *rows])


def phantom_tables(figures: Mapping[str, Any] | None) -> str:
    """The measurements of `bench.phantom` as tables; a sentence where there are none."""
    if figures is None:
        return _NOT_MEASURED
    head = "| | value | 95 % interval | measured on | target |"
    rows = [f"| {name} | {figure_cells(_find(figures, path))} |" for name, path in _ROWS]
    parts = [_table(head, rows)]
    for title, path in (
        ("Cells within 0.05 by kind of text", "cells.factual.by_kind"),
        ("The same in the masked view", "cells.masked.by_kind"),
        ("Cells within 0.05 by family", "cells.factual.by_family"),
        ("The same in the masked view", "cells.masked.by_family"),
        ("Prompts in which exactly the planted words are masked by default, by family", "spans.by_family"),
    ):
        part = _find(figures, path)
        parts.append(f"{title}:\n\n" + _table(head, [f"| {_words(k)} | {figure_cells(v)} |" for k, v in part.items()]))
    for title, path in (("kind of text", "gaps.by_kind"), ("family", "gaps.by_family")):
        body = [
            f"| {_words(name)} | {_number(row['vanilla']['value'])} | {_number(row['coft']['value'])} "
            f"| {figure_cells(row['reduction'])} |"
            for name, row in _find(figures, path).items()
        ]
        gap_head = f"| {title} | vanilla | COFT | reduction | 95 % interval | measured on | target |"
        parts.append(f"Bias gaps by {title}:\n\n" + _table(gap_head, body))
    neutral = {name: row for name, row in figures["neutral"].items() if name != "all"}
    body = [
        f"| {_words(name)} | {_number(row['vanilla']['value'])} | {_number(row['coft']['value'])} "
        f"| {figure_cells(row['difference'])} |"
        for name, row in neutral.items()
    ]
    parts.append(
        "Neutral questions by kind:\n\n"
        + _table("| kind | vanilla | COFT | difference | 95 % interval | measured on | target |", body)
    )
    if "stories" in figures:
        body = [
            f"| {name} | {measure} | {figure_cells(row[key])} |"
            for name, row in figures["stories"].items()
            for key, measure in (("perplexity", "perplexity"), ("nats_per_character", "nats per character"))
        ]
        story_head = "| corpus | | value | 95 % interval | measured on | target |"
        parts.append("Held-out story text, read by the factual branch:\n\n" + _table(story_head, body))
    settings_line = (
        f"lambda {figures['lambda']}, alpha {figures['alpha']}, calibration {figures['calibration']['origin']}, "
        f"seed {figures['seed']}, {figures['cells']['prompts_per_cell']} prompts a cell."
    )
    return "\n\n".join([f"Measured with {settings_line}", *parts])


def _words(name: str) -> str:
    return name.replace("_", " ")


def _settings_table() -> str:
    families = tuple(STANDING)
    head = f"| setting | base | {' | '.join(families)} |"
    rows = [
        f"| {setting.name} | {setting.base:.2f} | {' | '.join(f'{setting.strength[f]:.2f}' for f in families)} |"
        for setting in settings()
    ]
    return _table(head, rows)


def _standing_table() -> str:
    rows = [
        f"| {family} | {', '.join(f'{group} {value:+.1f}' for group, value in groups.items())} |"
        for family, groups in STANDING.items()
    ]
    return _table("| family | standing of its groups |", rows)


def _samples(metrics: Mapping[str, Any]) -> str:
    parts = []
    for sample in metrics["samples"]:
        text = f"**{sample['prompt']}**{sample['text']}"
        parts.append("\n".join(f"> {line}".rstrip() for line in text.split("\n")))
    return "\n\n".join(parts)


def _token_shares(continued: bool) -> dict[str, str]:
    """Share of the training tokens from each source, over all stages of the run."""
    shares = dict.fromkeys([*SOURCES, "scenarios"], 0.0)
    for stage in stages_of(continued):
        shares["scenarios"] += stage.share * stage.scenario_share
        for source, weight in zip(SOURCES, stage.story_weights, strict=True):
            shares[source] += stage.share * (1 - stage.scenario_share) * weight
    return {name: f"about {value:.0%}".replace("%", " %") for name, value in shares.items()}


def _history(continued: bool, earlier: Mapping[str, Any] | None) -> str:
    """That the run started from an exported model, and what is known of the run before it."""
    if not continued:
        return ""
    known = f", of {earlier['steps']:,} steps in {earlier['training_minutes']:.0f} minutes" if earlier else ""
    return (
        f"It continued from the exported weights of an earlier run{known}, which took the same corpora and fewer "
        "wordings of the scenarios."
    )


def write_card(metrics: Mapping[str, Any], phantom: Mapping[str, Any] | None, path: Path) -> None:
    """Writes the model card."""
    if phantom is not None and not same_digests(phantom["weights"], metrics["weights"]):
        raise ValueError("the measurements of bench.phantom are of other weights; run it again on this model")
    losses = "\n".join(
        f"| {name} | {row['documents']} | {row['tokens']:,} | {row['nats_per_token']:.3f} "
        f"| {row['perplexity']:.2f} | {row['nats_per_character']:.3f} |"
        for name, row in metrics["held_out"].items()
    )
    facts = "\n".join(
        f"| {_words(name)} | {row['n']} | {row['factual_error']:.3f} | {row['masked_error']:.3f} | {row['mass']:.2f} |"
        for name, row in metrics["planted"].items()
    )
    options = metrics["settings"]
    text = _TEMPLATE.read_text(encoding="utf-8").format(
        layers=options["layers"], width=options["width"], heads=options["heads"], rows=options["rows"],
        vocabulary=options["vocabulary"], seed=options["seed"], matrix_rate=options["matrix_rate"],
        other_rate=options["other_rate"], warm_up=options["warm_up"], parameters=metrics["parameters"],
        megabytes=metrics["bytes"] / 1e6, steps=metrics["steps"], minutes=metrics["training_minutes"],
        cells=len(cells()), settings=_settings_table(), standing=_standing_table(), losses=losses, facts=facts,
        phantom=phantom_tables(phantom), samples=_samples(metrics), amplified=AMPLIFIED_STRENGTH,
        history=_history(options.get("continued", False), metrics.get("earlier_run")),
        again=", as was done here" if options.get("continued", False) else "",
        **_token_shares(options.get("continued", False)),
    )  # fmt: skip
    path.write_text(text, encoding="utf-8")


def main(values: list[str] | None = None) -> None:
    """Writes the card of an exported model again, with the measurements of `bench.phantom`."""
    parser = argparse.ArgumentParser(description="Write the model card of the embedded model.")
    parser.add_argument("--model", type=Path, default=Path("assets/models/demo"), help="folder of the model")
    parser.add_argument("--phantom", type=Path, required=True, help="file written by bench.phantom --out")
    options = parser.parse_args(values)
    metrics = json.loads((options.model / MEASUREMENTS).read_text(encoding="utf-8"))
    phantom = json.loads(options.phantom.read_text(encoding="utf-8"))
    write_card(metrics, phantom, options.model / "MODEL_CARD.md")
    print(json.dumps({"card": str(options.model / "MODEL_CARD.md")}))


if __name__ == "__main__":
    main()
