"""The model card, written from the measurements of an export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_TEMPLATE = Path(__file__).with_name("card_template.md")


def write_card(metrics: dict[str, Any], path: Path) -> None:
    """Writes the model card.

    Args:
        metrics: Measurements and settings of an export.
        path: File to write.
    """
    losses = "\n".join(
        f"| {name} | {row['documents']} | {row['tokens']:,} | {row['nats_per_token']:.3f} "
        f"| {row['perplexity']:.2f} | {row['nats_per_character']:.3f} |"
        for name, row in metrics["held_out"].items()
    )
    planted = "\n".join(
        f"| {name.replace('_', ' ')} | {row['n']} | {row['factual_error']:.3f} "
        f"| {row['masked_error']:.3f} | {row['mass']:.2f} |"
        for name, row in metrics["planted"].items()
    )
    settings = metrics["settings"]
    text = _TEMPLATE.read_text(encoding="utf-8").format(
        layers=settings["layers"], width=settings["width"], heads=settings["heads"],
        vocabulary=settings["vocabulary"], seed=settings["seed"],
        parameters=metrics["parameters"], steps=metrics["steps"], minutes=metrics["training_minutes"],
        losses=losses, planted=planted,
    )  # fmt: skip
    path.write_text(text, encoding="utf-8")
