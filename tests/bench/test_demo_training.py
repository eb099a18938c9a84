from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from bench.demo_model.corpus import SOURCES
from bench.demo_model.dataset import MAX_OUTCOMES, Batches, encode_scenario, encode_story, mask_attributes, mask_words
from bench.demo_model.export import save_model
from bench.demo_model.phantom.generate import generate_texts
from bench.demo_model.scenarios import parse
from bench.demo_model.tokenizer import END_ID, MASK_ID, train_tokenizer
from bench.demo_model.train import Settings, Targets, Trainer, make_model, next_token_loss
from coft_core import load_model

EVEN = (0.1, 0.1, 0.1, 0.1, 0.1, 0.5)
SMALL = Settings(vocabulary=400, width=32, layers=1, heads=2, rows=2, steps=6, warm_up=2, bfloat16=False)


@pytest.fixture(scope="module")
def scenarios():
    return generate_texts(300, seed=4)


@pytest.fixture(scope="module")
def tokenizer(scenarios) -> Tokenizer:
    return train_tokenizer([scenario.text for scenario in scenarios], SMALL.vocabulary)


@pytest.fixture(scope="module")
def batches(tokenizer, scenarios):
    documents = [encode_scenario(tokenizer, scenario) for scenario in scenarios]
    stories = [[encode_story(tokenizer, "A small dog ran home. " * 9)]]
    return Batches(stories * len(SOURCES), documents, seed=2)


def test_masking_keeps_length_hides_exactly_the_words_and_never_the_end(tokenizer, scenarios):
    rng = np.random.default_rng(0)
    for scenario in scenarios:
        document = encode_scenario(tokenizer, scenario)
        masked, cut = mask_attributes(document, rng)
        hidden = set(np.flatnonzero(masked != document.ids).tolist())
        attributes = set().union(*(range(start, end) for start, end in document.spans if start < cut))
        names = set().union(*(range(start, end) for start, end in document.names if start < cut))
        assert len(masked) == len(document.ids)
        assert hidden in (attributes, attributes | names)
    for scenario in scenarios:
        document = encode_scenario(tokenizer, scenario)
        words = [tokenizer.decode(document.ids[a:b].tolist()).strip() for a, b in document.spans]
        assert words == [scenario.text[start:end] for start, end in scenario.spans]
    document = encode_story(tokenizer, "An extraordinary hippopotamus wandered along riverbanks quietly. " * 8)
    masked = mask_words(document, np.random.default_rng(1))
    hidden = masked == MASK_ID
    assert 0 < hidden.sum() < len(hidden) - 1
    assert masked[-1] == END_ID
    for word in np.unique(document.words):
        assert len(set(hidden[document.words == word].tolist())) == 1


def test_batches_are_those_of_their_step_and_become_tensors_of_the_same_numbers(batches):
    first, again, other = (batches.batch(step, 4, 64, EVEN, 1.0) for step in (3, 3, 4))
    for field in ("ids", "weights", "soft_ids", "soft_shares"):
        assert np.array_equal(getattr(first, field), getattr(again, field))
    assert not np.array_equal(first.ids, other.ids)
    assert first.ids.shape == first.weights.shape == (4, 64)
    assert first.soft_ids.shape == first.soft_shares.shape == (4, 64, MAX_OUTCOMES)
    batch = batches.batch(0, 2, 32, EVEN, 3.0)
    targets = Targets.of(batch, "cpu")
    for field in ("ids", "weights", "soft_ids", "soft_shares"):
        assert np.array_equal(getattr(targets, field).numpy(), getattr(batch, field))


def window(tokenizer, scenario, seed, focus=5.0):
    """The window of one scenario, as some step of the training draws it."""
    document = encode_scenario(tokenizer, scenario)
    story = encode_story(tokenizer, "A small dog ran home.")
    batch = Batches([[story]], [document], seed=seed).batch(0, 1, len(document.ids), (0.0, 1.0), focus)
    return document, batch


def cells(scenarios):
    return [s for s in scenarios if s.template.endswith(("/decision", "/answer", "/judgement"))]


def test_masked_windows_carry_the_masked_shares_and_factual_ones_the_factual(tokenizer, scenarios):
    chosen = [s for s in cells(scenarios) if s.factual != s.masked and len(s.spans) == 1][:20]
    seen = set()
    for scenario in chosen:
        for seed in range(6):
            document, batch = window(tokenizer, scenario, seed)
            (start, end), cut = document.spans[0], document.cut
            if batch.weights[0, cut] == 0:
                continue
            masked = bool((batch.ids[0, start:end] == MASK_ID).all())
            shares = batch.soft_shares[0, cut, :2]
            assert tuple(shares) == pytest.approx(scenario.masked if masked else scenario.factual)
            assert batch.soft_ids[0, cut, :2].tolist() == list(document.choice.ids)
            seen.add(masked)
    assert seen == {True, False}


def test_a_choice_behind_a_partial_mask_has_no_weight(tokenizer, scenarios):
    scenario = cells(scenarios)[0]
    text, spans = parse("A [[Black]] man and a [[white]] man" + scenario.text[scenario.cut :])
    cut = text.index(scenario.text[scenario.cut :])
    both = replace(scenario, text=text, spans=spans, cut=cut, names=())
    kinds = set()
    for seed in range(150):
        document, batch = window(tokenizer, both, seed)
        hidden = [bool((batch.ids[0, start:end] == MASK_ID).any()) for start, end in document.spans]
        if any(hidden) and not all(hidden):
            assert batch.weights[0, document.cut] == 0
            kinds.add("partial")
        elif all(hidden) and batch.weights[0, document.cut] > 0:
            assert tuple(batch.soft_shares[0, document.cut, :2]) == pytest.approx(both.masked)
            kinds.add("whole")
    assert kinds == {"partial", "whole"}


def hard(ids):
    """Targets that are the tokens themselves."""
    soft_ids = ids[..., None].repeat(1, 1, MAX_OUTCOMES)  # (B, T, 3)
    soft_shares = torch.zeros(soft_ids.shape)
    soft_shares[..., 0] = 1.0
    return soft_ids, soft_shares


def test_the_sentinel_is_no_target_of_the_loss():
    model = make_model(SMALL).eval()
    ids = torch.tensor([[5, 6, MASK_ID, 7, 8]])
    with torch.inference_mode():
        log_p = torch.log_softmax(model(input_ids=ids).logits[0].float(), -1)  # (T, V)
        expected = -(log_p[0, 6] + log_p[2, 7] + log_p[3, 8]) / 3
        weights = torch.ones(1, 5)
        torch.testing.assert_close(next_token_loss(model, ids, weights, *hard(ids)), expected)
        weights[0, 3] = 4.0
        expected = -(log_p[0, 6] + 4 * log_p[2, 7] + log_p[3, 8]) / 6
        torch.testing.assert_close(next_token_loss(model, ids, weights, *hard(ids)), expected)


def test_gradient_of_soft_targets_is_that_of_the_expected_loss_of_drawn_targets():
    model = make_model(SMALL)
    ids, shares = torch.tensor([[5, 6, 7]]), (0.3, 0.7)
    soft_ids, soft_shares = hard(ids)
    soft_ids[0, 2, :2] = torch.tensor([9, 11])
    soft_shares[0, 2, :2] = torch.tensor(shares)
    weights = torch.tensor([[1.0, 0.0, 1.0]])

    def gradients(loss):
        return torch.autograd.grad(loss, list(model.parameters()))

    soft = gradients(next_token_loss(model, ids, weights, soft_ids, soft_shares))
    # What follows the drawn token is no target here, so the drawn texts differ in nothing else.
    drawn = []
    for outcome in (9, 11):
        text = torch.tensor([[5, 6, outcome]])
        drawn.append(gradients(next_token_loss(model, text, weights, *hard(text))))
    for one, first, second in zip(soft, *drawn, strict=True):
        torch.testing.assert_close(one, shares[0] * first + shares[1] * second, rtol=1e-4, atol=1e-6)


def test_weights_are_stored_in_half_precision_and_loaded_in_full_on_a_cpu(tokenizer, tmp_path):
    model = make_model(replace(SMALL, vocabulary=tokenizer.get_vocab_size())).eval()
    before = next(model.parameters()).clone()
    save_model(model, tokenizer, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    loaded = load_model(str(tmp_path), device="cpu")
    assert loaded.dtype == torch.float32
    torch.testing.assert_close(next(loaded.module.parameters()), before.half().float())
    assert next(model.parameters()).dtype == torch.float32


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(batches, tmp_path):
    whole = Trainer(SMALL, batches, tmp_path / "whole.pt")
    whole.run(report_every=1000)
    first = Trainer(SMALL, batches, tmp_path / "part.pt")
    for _ in range(3):
        first.advance()
    first.save()
    second = Trainer(SMALL, batches, tmp_path / "part.pt")
    assert second.step == 3
    second.run(report_every=1000)
    for left, right in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        torch.testing.assert_close(left, right)


CONTINUED = replace(SMALL, seed=5, continued=True)
