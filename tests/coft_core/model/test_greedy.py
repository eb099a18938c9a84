"""A text written greedily is what repeated whole forwards give, and ends where it should."""

import pytest
import torch

from coft_core.errors import PromptTooLongError
from coft_core.model.branches import write_greedily
from coft_core.model.fake import tiny_model

IDS = tuple(tiny_model().tokenizer.encode("a fair day"))


def slowly(model, ids, most):
    written = []
    with torch.inference_mode():
        while len(written) < most:
            logits = model.module(torch.tensor([[*ids, *written]])).logits[0, -1]  # (V,)
            written.append(int(logits.argmax()))
    return written


def test_each_token_is_the_likeliest_until_a_text_is_complete():
    model = tiny_model(seed=2)
    expected = slowly(model, IDS, 12)
    assert not set(expected) & model.end_token_ids
    made = write_greedily(model, IDS, 12)
    assert made.text == model.continuation_text(expected)
    assert made.cut
    model = tiny_model(seed=2)
    made = write_greedily(model, IDS, 12, lambda text: len(text) >= 3)
    assert made.text == model.continuation_text(slowly(model, IDS, 12))[: len(made.text)]
    assert 3 <= len(made.text) < 12
    assert not made.cut


def test_the_end_token_ends_a_text_and_a_full_context_cuts_it():
    model = tiny_model(seed=2)
    first, second = slowly(model, IDS, 2)
    object.__setattr__(model, "end_token_ids", frozenset({second}))
    made = write_greedily(model, IDS, 12)
    assert (made.text, made.cut) == (model.continuation_text([first]), False)
    small = tiny_model(seed=2, context_length=len(IDS) + 3)
    assert write_greedily(small, IDS, 12).cut
    with pytest.raises(PromptTooLongError):
        write_greedily(tiny_model(context_length=len(IDS)), IDS, 1)
