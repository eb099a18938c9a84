import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from bench.demo_model.corpus import passages
from bench.demo_model.dataset import Batches, encode_scenario, encode_story, mask_attributes, mask_words
from bench.demo_model.scenarios import generate
from bench.demo_model.tokenizer import END_ID, MASK_ID, train_tokenizer
from bench.demo_model.train import STAGES, Settings, Trainer, make_model, next_token_loss, stage_at

EVEN = (0.2, 0.2, 0.1, 0.5)
SMALL = Settings(vocabulary=400, width=32, layers=1, heads=2, rows=2, steps=6, warm_up=2, bfloat16=False)


@pytest.fixture(scope="module")
def scenarios():
    return generate(200, seed=4)


@pytest.fixture(scope="module")
def tokenizer(scenarios) -> Tokenizer:
    return train_tokenizer([scenario.text for scenario in scenarios], SMALL.vocabulary)


@pytest.fixture(scope="module")
def batches(tokenizer, scenarios):
    documents = [encode_scenario(tokenizer, scenario) for scenario in scenarios]
    stories = [[encode_story(tokenizer, "A small dog ran home. " * 9)]]
    return Batches([*stories, *stories, *stories], documents, seed=2)


def test_attribute_masking_keeps_length_and_hides_exactly_the_words_before_the_cut(tokenizer, scenarios):
    rng = np.random.default_rng(0)
    for scenario in scenarios:
        document = encode_scenario(tokenizer, scenario)
        masked = mask_attributes(
            document,
            rng,
        )
        hidden = set(np.flatnonzero(masked != document.ids).tolist())
        allowed = [set(range(start, end)) for start, end in document.spans]
        assert len(masked) == len(document.ids)
        assert hidden == set().union(*(span for span in allowed if span & hidden))
        shown = [min(span) for span in allowed if not span & hidden]
        assert all(start > max(hidden, default=-1) for start in shown)


def test_token_spans_decode_to_the_attribute_words(tokenizer, scenarios):
    for scenario in scenarios:
        document = encode_scenario(tokenizer, scenario)
        words = [tokenizer.decode(document.ids[a:b].tolist()).strip() for a, b in document.spans]
        assert words == [scenario.text[start:end] for start, end in scenario.spans]


def test_word_masking_hides_whole_words_and_never_the_end(tokenizer):
    document = encode_story(tokenizer, "An extraordinary hippopotamus wandered along riverbanks quietly. " * 8)
    masked = mask_words(document, np.random.default_rng(1))
    hidden = masked == MASK_ID
    assert 0 < hidden.sum() < len(hidden) - 1
    assert masked[-1] == END_ID
    for word in np.unique(document.words):
        assert len(set(hidden[document.words == word].tolist())) == 1


def test_a_step_always_gives_the_same_batch_and_another_step_another(batches):
    assert np.array_equal(batches.batch(3, 4, 64, EVEN, 1.0)[0], batches.batch(3, 4, 64, EVEN, 1.0)[0])
    assert not np.array_equal(batches.batch(3, 4, 64, EVEN, 1.0)[0], batches.batch(4, 4, 64, EVEN, 1.0)[0])
    assert batches.batch(3, 4, 64, EVEN, 1.0)[0].shape == (4, 64)


def test_focus_weighs_the_start_of_planted_continuations_and_nothing_else(tokenizer, scenarios):
    document = encode_scenario(tokenizer, scenarios[0])
    story = encode_story(tokenizer, "A small dog ran home.")
    ids, weights = Batches([[story]], [document], seed=0).batch(0, 1, len(document.ids), (0.0, 1.0), 5.0)
    assert np.array_equal(np.flatnonzero(weights[0] == 5.0), [document.cut, document.cut + 1])
    assert set(weights[0].tolist()) == {1.0, 5.0}
    assert tokenizer.decode(ids[0, document.cut :].tolist()) == scenarios[0].text[scenarios[0].cut :]


def test_the_sentinel_is_no_target_of_the_loss():
    model = make_model(SMALL).eval()
    ids = torch.tensor([[5, 6, MASK_ID, 7, 8]])
    with torch.inference_mode():
        log_p = torch.log_softmax(model(input_ids=ids).logits[0].float(), -1)  # (T, V)
        expected = -(log_p[0, 6] + log_p[2, 7] + log_p[3, 8]) / 3
        weights = torch.ones(1, 5)
        torch.testing.assert_close(next_token_loss(model, ids, weights), expected)
        weights[0, 3] = 4.0
        expected = -(log_p[0, 6] + 4 * log_p[2, 7] + log_p[3, 8]) / 6
        torch.testing.assert_close(next_token_loss(model, ids, weights), expected)


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


def test_passages_keep_all_paragraphs_in_order():
    paragraphs = [f"{number} " + "word " * 60 for number in range(30)]
    parts = passages("\n\n".join(paragraphs))
    assert len(parts) > 3
    assert "\n\n".join(parts).split("\n\n") == [paragraph.strip() for paragraph in paragraphs]


def test_stages_cover_the_run_and_its_last_rate_is_zero():
    assert sum(stage.share for stage in STAGES) == pytest.approx(1)
    assert stage_at(0.0) == (STAGES[0], STAGES[0].rates[0])
    assert stage_at(1.0)[1] == 0.0
    begin = 0.0
    for stage in STAGES:
        assert stage_at(begin + 1e-9)[0] == stage
        begin += stage.share
