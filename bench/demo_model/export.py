"""Export of a checkpoint as a model folder that loads without a network."""

from __future__ import annotations

import copy
import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaForCausalLM

from bench.demo_model.card import MEASUREMENTS, write_card
from bench.demo_model.corpus import Source, attribution_rows
from bench.demo_model.evaluate import Reading, held_out_loss, mean_error, read_facts
from bench.demo_model.manifest import write_manifest
from bench.demo_model.phantom.generate import generate_texts, seen_in_training
from bench.demo_model.phantom.learnt import cell_rows, read_cells, read_resolutions, resolution_rows
from bench.demo_model.phantom.outcomes import Policies
from bench.demo_model.samples import write_samples
from bench.demo_model.tokenizer import END_ID, PAD_ID, save_tokenizer
from bench.demo_model.train import Settings, make_model
from coft_core import CoftPolicy, VanillaPolicy, load_model

HELD_OUT_SCENARIOS = 600
HELD_OUT_SEED = 1_000_003
MANIFEST_SEED = 1
RESOLUTION_PROMPTS = 4


def load_checkpoint(path: Path) -> tuple[LlamaForCausalLM, dict[str, Any]]:
    """Returns the model of a checkpoint and what else the checkpoint says."""
    state = torch.load(path, weights_only=True)
    model = make_model(Settings(**state["settings"]))
    model.load_state_dict(state["model"])
    return model.eval(), {key: state[key] for key in ("step", "seconds", "settings")}


def held_out_scenario_texts(seed: int) -> list[str]:
    """Generates scenario texts with another seed and leaves out those that the training texts contain."""
    seen = seen_in_training(seed)
    fresh = (scenario.text for scenario in generate_texts(4 * HELD_OUT_SCENARIOS, HELD_OUT_SEED + seed))
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
    """Writes weights in float16, configuration and tokenizer; the model itself stays as it is."""
    out.mkdir(parents=True, exist_ok=True)
    model = copy.deepcopy(model).half()
    model.generation_config = GenerationConfig(eos_token_id=END_ID, pad_token_id=PAD_ID)
    model.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    save_tokenizer(tokenizer, out)


def export_model(
    checkpoint: Path,
    tokenizer: Tokenizer,
    sources: list[Source],
    data: Path,
    out: Path,
    prompts: int = 8,
    started_from: Path | None = None,
) -> dict[str, Any]:
    """Exports the checkpoint with its manifest, model card and attributions.

    Everything is measured on the folder as it is loaded again, so on the weights in float16 that are shipped.
    """
    earlier = _earlier_run(started_from)
    trained, training = load_checkpoint(checkpoint)
    save_model(trained, tokenizer, out)
    loaded = load_model(str(out), device="cpu")
    readings = read_facts(loaded.module, tokenizer)
    policies = Policies(VanillaPolicy(), CoftPolicy())
    cells = read_cells(loaded, policies, prompts, MANIFEST_SEED)
    pronouns = read_resolutions(loaded, policies, RESOLUTION_PROMPTS, MANIFEST_SEED)
    write_manifest(readings, cell_rows(cells), resolution_rows(pronouns, RESOLUTION_PROMPTS), out / "manifest.json")
    fresh = held_out_scenario_texts(training["settings"]["seed"])
    metrics = measure(loaded.module, tokenizer, sources, readings, fresh)
    metrics |= {
        "parameters": loaded.parameter_count, "weights": loaded.weights_digest,
        "bytes": (out / "model.safetensors").stat().st_size,
        "steps": training["step"], "training_minutes": training["seconds"] / 60,
        "settings": training["settings"], "samples": write_samples(loaded),
    } | earlier  # fmt: skip
    write_attributions(data, out / "ATTRIBUTION.tsv")
    (out / MEASUREMENTS).write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    write_card(metrics, None, out / "MODEL_CARD.md")
    return metrics


def _earlier_run(folder: Path | None) -> dict[str, Any]:
    """Steps and minutes of the run before a continued one, where its measurements are there."""
    if folder is None or not (folder / MEASUREMENTS).is_file():
        return {}
    measured = json.loads((folder / MEASUREMENTS).read_text(encoding="utf-8"))
    return {"earlier_run": {name: measured[name] for name in ("steps", "training_minutes")}}


def write_attributions(data: Path, path: Path) -> None:
    """Writes title, author, licence and publisher of every storybook and book."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("title", "author", "licence", "publisher"))
        writer.writerows(attribution_rows(data))
