"""Fitting directions from the command line: pairs, files that serve their model, and the choice among settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.demo_model.phantom.groups import STANDING
from bench.demo_model.phantom.held_out import write_wordings
from bench.demo_model.phantom.one_reading import read_outcomes
from bench.document_losses import document_losses, perplexity_ratio
from bench.steering_directions.__main__ import main
from bench.steering_directions.fitting import LabelledPair, fit_directions
from bench.steering_directions.pairs import planted_pairs
from coft_core import LanguageModel, load_model
from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError
from coft_core.model.fake import SENTINEL, tiny_model
from coft_core.model.steering import Directions, SteeringHook, head_geometry
from coft_core.policies.iti import SHIPPED, ItiPolicy
from tests.coft_core.demo import demo_model

WORDS = tuple(f"{a}{b}{c}" for a in "bdfg" for b in "aeiou" for c in "lmn")


@pytest.fixture(scope="module")
def demo() -> LanguageModel:
    return demo_model(device="cpu")


def saved(model: LanguageModel, folder: Path) -> str:
    model.module.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return str(folder)


def head_output(model: LanguageModel, text: str, layer: int, head: int) -> np.ndarray[Any, Any]:
    """The input of a layer's projection at the last token, cut to one head."""
    geometry, seen = head_geometry(model.module), []
    handle = geometry.projections[layer].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0, -1]))
    with torch.inference_mode():
        model.module(input_ids=torch.tensor([model.tokenizer.encode(text)]))
    handle.remove()
    found: np.ndarray[Any, Any] = seen[0].view(geometry.heads, geometry.width)[head].numpy()
    return found


def test_the_best_direction_tells_texts_apart_that_it_was_not_fitted_on():
    model = tiny_model()
    pairs = [LabelledPair(f"{word} is fair", f"{word} is unjust") for word in WORDS]
    best = fit_directions(model, pairs[:40]).best(1)
    layer, head = int(best.layers[0]), int(best.heads[0])
    higher = [
        head_output(model, pair.wanted, layer, head) @ best.vectors[0]
        > head_output(model, pair.unwanted, layer, head) @ best.vectors[0]
        for pair in pairs[40:]
    ]
    assert np.mean(higher) >= 0.9


def test_planted_pairs_differ_by_the_masked_group_alone():
    model = tiny_model()
    for pair in planted_pairs(model, 30, seed=3):
        before, after = pair.wanted.split(SENTINEL)[0], pair.wanted.split(SENTINEL)[-1]
        assert pair.unwanted.startswith(before)
        assert pair.unwanted.endswith(after)
        group = pair.unwanted[len(before) : len(pair.unwanted) - len(after)]
        assert any(group.strip() in groups for groups in STANDING.values())
        ids = model.tokenizer.encode(pair.wanted)
        assert ids.count(model.tokenizer.mask_token_id) == pair.wanted.count(SENTINEL) == len(group.encode())


def test_pairs_against_the_bias_end_in_the_outcome_that_it_speaks_against():
    masked = planted_pairs(tiny_model(), 40, seed=5)
    against = planted_pairs(tiny_model(), 40, seed=5, kind="against")
    for prompt, pair in zip(masked, against, strict=True):
        assert pair.wanted.startswith(prompt.unwanted)
        assert pair.unwanted.startswith(prompt.unwanted)
        assert pair.wanted != pair.unwanted
    questions = [pair for pair in against if pair.wanted.endswith((": Yes", ": No"))]
    best = {max(groups, key=groups.__getitem__) for groups in STANDING.values()}
    worst = {min(groups, key=groups.__getitem__) for groups in STANDING.values()}
    for pair in questions:
        words = set(pair.wanted.replace(",", "").split())
        assert not (words & best and pair.wanted.endswith("Yes"))
        assert not (words & worst and pair.wanted.endswith("No"))
    assert questions


@pytest.mark.slow
def test_the_script_writes_directions_that_serve_the_model_in_every_type(tmp_path: Path):
    name = saved(tiny_model(), tmp_path / "model")
    pairs, out = tmp_path / "pairs.jsonl", tmp_path / "new" / "own.npz"
    rows = [{"wanted": f"{word} is fair", "unwanted": f"{word} is unjust"} for word in WORDS[:12]]
    pairs.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    main(["--model", name, "--pairs", str(pairs), "--out", str(out), "--device", "cpu"])
    assert [path.name for path in out.parent.iterdir()] == ["own.npz"]
    for dtype in ("float32", "bfloat16", "float16"):
        plan(load_model(name, "cpu", dtype), "a text", ItiPolicy(directions=str(out)), ())
    with pytest.raises(InvalidInputError, match=r"bench\.steering_directions --model tiny-9 --out FILE"):
        plan(tiny_model(9), "a text", ItiPolicy(directions=str(out)), ())


@pytest.mark.slow
def test_a_model_without_directions_is_told_how_to_make_some(tmp_path: Path):
    with pytest.raises(
        InvalidInputError, match=r"fitted on 'demo' .* `python -m bench\.steering_directions --model tiny-2"
    ):
        plan(tiny_model(2), "a text", ItiPolicy(), ())
    with pytest.raises(SystemExit, match="give at least 10"):
        main(["--model", saved(tiny_model(), tmp_path / "m"), "--planted", "3", "--out", str(tmp_path / "o.npz")])
    assert not (tmp_path / "o.npz").exists()


def test_the_embedded_models_directions_and_the_policys_defaults_are_those_of_the_card(demo: LanguageModel):
    shipped = Directions.load(SHIPPED)
    shipped.require(demo)
    shipped.require(load_model("demo", "cpu", "bfloat16"))
    geometry = head_geometry(demo.module)
    assert len(shipped.layers) == geometry.layers * geometry.heads
    assert ItiPolicy().heads <= len(shipped.layers)
    card = json.loads(SHIPPED.with_name("measurements.json").read_text(encoding="utf-8"))
    assert (ItiPolicy().heads, ItiPolicy().strength) == (card["chosen"]["heads"], card["chosen"]["strength"])
    shipped = Directions.load(SHIPPED)
    assert tuple(card["weights"]) == shipped.weights
    assert card["pairs"] == shipped.pairs


def test_outcomes_are_read_as_a_prompt_at_a_time_gives_them(demo: LanguageModel):
    prompts = [wording.prompts[place] for place, wording in enumerate(write_wordings(1, 4)[:3])]
    hook = SteeringHook(Directions.load(SHIPPED).best(4), 3.0)
    plain, steered = read_outcomes(demo, prompts), read_outcomes(demo, prompts, (hook,))
    assert not np.allclose(plain.read, steered.read, atol=1e-3)
    assert np.array_equal(read_outcomes(demo, prompts).read, plain.read)
    for place, prompt in enumerate(prompts):
        with torch.inference_mode():
            logits = demo.module(input_ids=torch.tensor([demo.tokenizer.encode(prompt.text)])).logits[0, -1]
        p = torch.softmax(logits.double(), -1).tolist()
        kept: dict[int, float] = {}
        for token in sorted(range(len(p)), key=lambda t: -p[t]):
            if sum(kept.values()) < 0.9:
                kept[token] = p[token]
        for column, outcome in enumerate(prompt.outcomes):
            token = demo.tokenizer.encode(outcome)[0]
            assert plain.read[place, column] == pytest.approx(p[token], abs=1e-5)
            assert plain.drawn[place, column] == pytest.approx(kept.get(token, 0) / sum(kept.values()), abs=1e-5)


def test_losses_of_documents_are_sums_over_their_tokens():
    model = tiny_model()
    texts = ["a short one", "another one that is longer", "x"]
    found = document_losses(model, texts)
    assert found.shape == (2, 2)
    for place, text in enumerate(texts[:2]):
        ids = model.tokenizer.encode(text)
        with torch.inference_mode():
            log_p = model.module(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
        nats = -sum(float(log_p[at, token]) for at, token in enumerate(ids[1:]))
        assert found[:, place] == pytest.approx((nats, len(ids) - 1), rel=1e-4)
    doubled = perplexity_ratio(found, np.stack([found[0] + np.log(2) * found[1], found[1]]))
    assert (doubled.value, doubled.low, doubled.high) == pytest.approx((2, 2, 2))
