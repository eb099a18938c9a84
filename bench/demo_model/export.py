"""Export of a checkpoint as a model folder that loads without a network."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaForCausalLM

from bench.demo_model.card import write_card
from bench.demo_model.corpus import Source, attribution_rows
from bench.demo_model.evaluate import Reading, held_out_loss, mean_error, read_facts
from bench.demo_model.scenarios import generate
from bench.demo_model.tokenizer import END_ID, PAD_ID, save_tokenizer
from bench.demo_model.train import Settings, make_model

HELD_OUT_SCENARIOS = 600
HELD_OUT_SEED = 1_000_003


def load_checkpoint(path: Path) -> tuple[LlamaForCausalLM, dict[str, Any]]:
    """Returns the model of a checkpoint and what else the checkpoint says.

    Raises:
        FileNotFoundError: If there is no checkpoint yet.
    """
    state = torch.load(path, weights_only=True)
    model = make_model(Settings(**state["settings"]))
    model.load_state_dict(state["model"])
    return model.eval(), {key: state[key] for key in ("step", "seconds", "settings")}


def manifest(readings: list[Reading]) -> dict[str, Any]:
    """Lists the planted probabilities beside those that the model learnt."""
    rows = [
        {
            "name": reading.fact.name,
            "family": reading.fact.family,
            "prompt": reading.fact.prompt,
            "spans": [list(span) for span in reading.fact.spans],
            "outcomes": list(reading.fact.outcomes),
            "planted": [round(value, 4) for value in reading.fact.factual],
            "planted_masked": [round(value, 4) for value in reading.fact.masked],
            "learnt": [round(value, 4) for value in reading.factual],
            "learnt_masked": [round(value, 4) for value in reading.masked],
            "learnt_mass": round(reading.mass, 4),
        }
        for reading in readings
    ]
    note = (
        "Probabilities planted on purpose in the training texts, for demonstration. Planted and learnt "
        "values are shares among the outcomes listed; learnt_mass is what the model gives to all of them "
        "together."
    )
    return {"note": note, "facts": rows}


def held_out_scenario_texts(seed: int, training: int) -> list[str]:
    """Generates scenario texts with another seed and leaves out those that the training texts contain."""
    seen = {scenario.text for scenario in generate(training, seed)}
    fresh = (scenario.text for scenario in generate(4 * HELD_OUT_SCENARIOS, HELD_OUT_SEED + seed))
    return [text for text in dict.fromkeys(fresh) if text not in seen][:HELD_OUT_SCENARIOS]


def measure(
    model: LlamaForCausalLM,
    tokenizer: Tokenizer,
    sources: list[Source],
    readings: list[Reading],
    scenarios: list[str],
) -> dict[str, Any]:
    """Collects the numbers of the model card."""
    losses = {source.name: asdict(held_out_loss(model, tokenizer, source.held_out)) for source in sources}
    losses["scenarios"] = asdict(held_out_loss(model, tokenizer, scenarios))
    planted: dict[str, dict[str, float]] = {}
    for kind in ("pronoun", "agreement", "decision", "hired_by_name"):
        named = {"pronoun", "agreement", "hired_by_name"}
        part = [
            r for r in readings
            if (r.fact.name.split("/")[0] if r.fact.name.split("/")[0] in named else "decision") == kind
        ]  # fmt: skip
        planted[kind] = {
            "n": len(part), "factual_error": mean_error(part, False), "masked_error": mean_error(part, True),
            "mass": sum(r.mass for r in part) / len(part),
        }  # fmt: skip
    planted["all"] = {
        "n": len(readings), "factual_error": mean_error(readings, False),
        "masked_error": mean_error(readings, True), "mass": sum(r.mass for r in readings) / len(readings),
    }  # fmt: skip
    return {"held_out": losses, "planted": planted}


def save_model(model: LlamaForCausalLM, tokenizer: Tokenizer, out: Path) -> None:
    """Writes weights in float32, configuration and tokenizer."""
    out.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig(eos_token_id=END_ID, pad_token_id=PAD_ID)
    model.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    save_tokenizer(tokenizer, out)


def export_model(
    checkpoint: Path, tokenizer: Tokenizer, sources: list[Source], data: Path, out: Path, scenarios: int
) -> dict[str, Any]:
    """Exports the checkpoint with its manifest, model card and attributions.

    Args:
        checkpoint: Checkpoint file.
        tokenizer: Tokenizer that the model was trained with.
        sources: Corpora, for their held-out documents.
        data: Data folder, for the attributions.
        out: Folder to write.
        scenarios: Number of training scenarios, which the held-out ones must not repeat.

    Returns:
        The measurements, ready for JSON.
    """
    model, training = load_checkpoint(checkpoint)
    save_model(model, tokenizer, out)
    readings = read_facts(model, tokenizer)
    (out / "manifest.json").write_text(json.dumps(manifest(readings), indent=1) + "\n", encoding="utf-8")
    fresh = held_out_scenario_texts(training["settings"]["seed"], scenarios)
    metrics = measure(model, tokenizer, sources, readings, fresh)
    metrics |= {
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": training["step"], "training_minutes": training["seconds"] / 60,
        "settings": training["settings"],
    }  # fmt: skip
    with (out / "ATTRIBUTION.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("title", "author", "licence", "publisher"))
        writer.writerows(attribution_rows(data))
    write_card(metrics, out / "MODEL_CARD.md")
    return metrics
