"""The train-time references: swapped texts, one epoch, the reversed gradient, checkpoints that the policies take."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from bench.demo_model.phantom.groups import STANDING
from bench.train_time.__main__ import main
from bench.train_time.adversary import (
    AdversarialObjective,
    Adversary,
    frequent_terms,
    label,
    ramp,
    release_head,
    reverse_gradient,
)
from bench.train_time.runs import AdversarialSettings, train_adversarial, train_augmented
from bench.train_time.texts import MarkedText, augment, counterpart, planted_texts
from bench.train_time.training import UNLABELLED, Schedule, encode, language_objective, parts
from coft_core import LanguageModel, Span, VanillaPolicy, generate, load_model
from coft_core.errors import InvalidInputError
from coft_core.model.fake import byte_tokenizer, tiny_model
from coft_core.model.load import wrap_model
from coft_core.policies.base import Policy
from coft_core.policies.train_time import AdversarialHeadPolicy, CdaPolicy

CPU = torch.device("cpu")
FAST = Schedule(learning_rate=1e-2, batch=8, part_tokens=256)


def about(text: str, *words: str) -> MarkedText:
    """A text whose named words are sensitive."""
    return MarkedText(text, tuple(Span(text.index(word), text.index(word) + len(word)) for word in words))


def some_texts(number: int = 24) -> list[MarkedText]:
    places = ("bank", "shop", "farm", "zoo")
    groups = ("Sikh", "Hindu", "blind")
    return [about(f"A {groups[i % 3]} man at the {places[i % 4]} {i}.", groups[i % 3]) for i in range(number)]


def saved(model: LanguageModel, folder: Path) -> LanguageModel:
    model.module.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return load_model(str(folder), "cpu")


def tied_model() -> LanguageModel:
    config = LlamaConfig(
        vocab_size=258, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=128, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(5)
        module: Any = LlamaForCausalLM(config).eval().requires_grad_(False)
    return wrap_model(module, byte_tokenizer(), name="tied")


def written(model: LanguageModel, policy: Policy) -> list[tuple[int, float]]:
    """Tokens of a chain, with the probability of each in the factual view."""
    run = generate(model, "A Sikh man", policy, (Span(2, 6),), max_new_tokens=4, seed=3)
    return [(step.token_id, step.log_p_factual) for step in run.steps]


def quiet(_: str) -> None:
    pass


def test_every_text_with_an_attribute_stands_twice_once_about_another_group():
    texts = planted_texts(200, seed=77)
    found = augment(texts, seed=0)
    assert (found.swapped, found.unmarked, found.unknown) == (200, 0, 0)
    assert len(found.texts) == 400
    assert list(found.texts[::2]) == [item.text for item in texts]
    assert all(one != other for one, other in zip(found.texts[::2], found.texts[1::2], strict=True))


def test_a_planted_group_becomes_another_one_of_its_family_everywhere():
    groups_of = {group: tuple(groups) for groups in STANDING.values() for group in groups}
    rng = random.Random(2)
    seen = set()
    for item in planted_texts(120, seed=78):
        named = {item.text[span.start : span.end] for span in item.spans}
        if len(named) > 1 or not named <= groups_of.keys():
            continue
        (group,) = named
        other = counterpart(item, rng)
        assert other is not None
        puts = [new for new in groups_of[group] if new != group and plainly(item.text, group, new) == plainly(other)]
        assert len(puts) == 1
        seen.add(group)
    assert len(seen) > 15


def plainly(text: str, old: str = "", new: str = "") -> str:
    """A text with one word put for another, whatever articles and capitals are."""
    words = text.replace(old, new) if old else text
    return " ".join(word for word in words.lower().split() if word not in ("a", "an", '"a', '"an'))


def test_other_words_are_swapped_as_the_tables_say_and_what_has_nothing_to_swap_stands_once():
    texts = [about("He fed his dog.", "He", "his"), about("A tree fell."), about("The qwzx man.", "qwzx")]
    found = augment(texts, seed=0)
    assert found.texts[:2] in {("He fed his dog.", "She fed her dog."), ("He fed his dog.", "They fed their dog.")}
    assert found.texts[2:] == ("A tree fell.", "The qwzx man.")
    assert (found.swapped, found.unmarked, found.unknown) == (1, 1, 1)


def test_padding_and_accumulation_change_no_gradient():
    model = tiny_model()
    texts = ["a", "some longer text", "short one", "the longest text of all four"]
    documents = [found for text in texts if (found := encode(model, text)) is not None]
    module = model.module.requires_grad_(True)
    total, count = torch.zeros(()), sum(len(document.ids) - 1 for document in documents)
    for document in documents:
        ids = torch.tensor([document.ids])
        logits = module(input_ids=ids).logits[0, :-1]
        total = total + functional.cross_entropy(logits, ids[0, 1:], reduction="sum") / count
    total.backward()
    expected = [p.grad.clone() for p in module.parameters()]
    for budget in (1, 40, 4096):
        module.zero_grad()
        losses = [language_objective(module)(part) for part in parts(documents, budget, 0.0, CPU)]
        sum(losses[1:], losses[0]).backward()
        assert sum(loss.item() for loss in losses) == pytest.approx(total.item(), rel=1e-5)
        for own, wanted in zip(module.parameters(), expected, strict=True):
            assert torch.allclose(own.grad, wanted, atol=1e-5)


def test_the_reversal_leaves_values_turns_gradients_round_and_grows_to_its_full_strength():
    values = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_(True)
    weights = torch.randn(3, generator=torch.Generator().manual_seed(1))
    (straight,) = torch.autograd.grad(((values @ weights) ** 2).sum(), values)
    assert torch.equal(reverse_gradient(values, 0.7), values)
    (turned,) = torch.autograd.grad(((reverse_gradient(values, 0.7) @ weights) ** 2).sum(), values)
    assert torch.allclose(turned, -0.7 * straight)
    steps = [ramp(share / 10) for share in range(11)]
    assert steps[0] == 0
    assert steps == sorted(steps)
    assert steps[-1] == pytest.approx(1, abs=1e-3)


def test_the_head_descends_the_texts_loss_and_climbs_the_adversarys_while_the_adversary_descends_its_own():
    model, texts = tiny_model(), some_texts(6)
    classes = frequent_terms(texts)
    documents = [found for item in texts if (found := label(model, item, classes)) is not None]
    head = release_head(model.module)
    torch.manual_seed(3)
    adversary = Adversary(len(head), len(classes))
    (part,) = parts(documents, 4096, 1.0, CPU)
    objective = AdversarialObjective(model.module, adversary, 0.5)
    own = [head, *adversary.parameters()]
    gradients = torch.autograd.grad(objective(part), own)

    hidden = model.module.model(input_ids=part.ids).last_hidden_state
    logits = hidden @ head.T
    known = part.targets != UNLABELLED
    text_loss = functional.cross_entropy(logits[known], part.targets[known])
    marked = part.labels != UNLABELLED
    scores = adversary.layers(logits[marked] - logits[marked].mean(-1, keepdim=True))
    wrong = functional.cross_entropy(scores, part.labels[marked])
    (of_text,) = torch.autograd.grad(text_loss, head, retain_graph=True)
    of_adversary = torch.autograd.grad(wrong, own)
    assert torch.allclose(gradients[0], of_text - 0.5 * ramp(1.0) * of_adversary[0], atol=1e-5)
    for found, wanted in zip(gradients[1:], of_adversary[1:], strict=True):
        assert torch.allclose(found, wanted, atol=1e-5)
    assert objective.take_accuracy() == pytest.approx(float((scores.argmax(-1) == part.labels[marked]).float().mean()))


def test_an_augmented_checkpoint_is_decoded_by_its_policy_and_differs_from_the_base(tmp_path: Path):
    base = saved(tiny_model(), tmp_path / "base")
    facts = train_augmented(load_model(base.name, "cpu"), some_texts(), tmp_path / "cda", FAST, quiet)
    checkpoint = load_model(str(tmp_path / "cda"), "cpu")
    assert checkpoint.tokenizer_digest == base.tokenizer_digest
    assert checkpoint.weights_digest != base.weights_digest
    assert (facts["swapped"], facts["base_weights"]) == (24, base.weights_digest)
    assert written(base, CdaPolicy(checkpoint=checkpoint.name)) == written(checkpoint, VanillaPolicy())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "cda"]


@pytest.mark.parametrize("made", [tiny_model, tied_model])
def test_an_adversarial_checkpoint_differs_from_the_base_in_its_head_alone(tmp_path: Path, made: Any):
    base = saved(made(), tmp_path / "base")
    before = copy.deepcopy(base.module.state_dict())
    train_adversarial(load_model(base.name, "cpu"), some_texts(), tmp_path / "adv", FAST, AdversarialSettings(), quiet)
    checkpoint = load_model(str(tmp_path / "adv"), "cpu")
    after = checkpoint.module.state_dict()
    changed = [name for name, weights in after.items() if not torch.equal(weights, before[name])]
    assert changed == ["lm_head.weight"]
    assert checkpoint.tokenizer_digest == base.tokenizer_digest
    assert checkpoint.vocabulary_size == base.vocabulary_size
    assert written(base, AdversarialHeadPolicy(checkpoint=checkpoint.name)) == written(checkpoint, VanillaPolicy())


def test_a_training_is_the_same_with_the_same_seed_and_leaves_no_trace_in_other_draws(tmp_path: Path):
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    digests = []
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        schedule = Schedule(1e-2, 8, 256, seed)
        train_adversarial(tied_model(), some_texts(), tmp_path / name, schedule, AdversarialSettings(), quiet)
        digests.append(load_model(str(tmp_path / name), "cpu").weights_digest)
    assert digests[0] == digests[1] != digests[2]
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.slow
def test_the_script_trains_on_files_and_measures_both_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved(tiny_model(), tmp_path / "base")
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(f"The woman saw {i} dogs." for i in range(20)), encoding="utf-8")
    common = ["--model", str(tmp_path / "base"), "--texts", str(path), "--batch", "8", "--device", "cpu"]
    main(["cda", "--out", str(tmp_path / "cda"), "--learning-rate", "0.01", *common])
    said = capsys.readouterr().out
    assert "18 texts: 18 with their counterpart" in said
    assert '"benchmark": "train_time"' in said.splitlines()[-1]
    with pytest.raises(SystemExit, match="already something"):
        main(["cda", "--out", str(tmp_path / "cda"), *common])


def test_texts_in_which_there_is_nothing_to_learn_from_are_refused(tmp_path: Path):
    plain = [about("A tree fell."), about("It rained.")]
    with pytest.raises(InvalidInputError, match="an attribute that can be swapped"):
        train_augmented(tiny_model(), plain, tmp_path / "o", FAST, quiet)
    with pytest.raises(InvalidInputError, match="fewer than two sensitive words"):
        train_adversarial(tiny_model(), some_texts(1), tmp_path / "o", FAST, AdversarialSettings(), quiet)
    with pytest.raises(InvalidInputError, match=r"bench\.train_time adversarial --model MODEL --out DIR"):
        AdversarialHeadPolicy()
    assert not list(tmp_path.iterdir())
