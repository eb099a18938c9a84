"""A model that writes a given text, thinking and answer, behind prompts that end with a question mark."""

from types import SimpleNamespace

import torch
from torch import nn

from coft_core.model.fake import _Config, byte_tokenizer
from coft_core.model.load import wrap_model

TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)
"""Knows of thinking, and leaves it to the model to open it; without thinking it has been written already."""
THINKS = "<think>hm</think>42."
THINKS_ON = "<think>hmb"
"""Goes round in its thinking: behind the last letter comes the first again."""
RARELY = -4.0
"""Logit of all tokens but the next one of the text."""


class Reciting(nn.Module):
    """The next token depends on the last one alone: that of the text, or rarely another one."""

    def __init__(self, tokenizer, text, rarely):
        super().__init__()
        start, end = tokenizer("?")["input_ids"][-1], tokenizer.eos_token_id
        ids = [start, *tokenizer(text)["input_ids"]]
        assert len(set(ids)) == len(ids), "a token of the text has two that follow it"
        logits = torch.full((len(tokenizer), len(tokenizer)), rarely)
        following = [*ids[1:], end] if "</think>" in text else [*ids[1:], ids[2]]
        for token, after in zip(ids, following, strict=True):
            logits[token, after] = 4.0
        self.table = nn.Parameter(logits, requires_grad=False)
        self.config = _Config(256)
        self.generation_config = SimpleNamespace(eos_token_id=end)

    def get_output_embeddings(self):
        return SimpleNamespace(weight=self.table.T)

    def forward(self, input_ids, past_key_values=None, attention_mask=None, use_cache=False):
        if past_key_values is not None:
            nothing = torch.zeros((*input_ids.shape, 1))[:, None]  # (R, 1, L, 1)
            past_key_values.update(nothing, nothing, 0)
        return SimpleNamespace(logits=self.table[input_ids])


def reciting_model(text=THINKS, name="reciting", rarely=RARELY):
    """The model, with a chat template that knows of thinking."""
    tokenizer = byte_tokenizer(TEMPLATE)
    tokenizer.add_tokens(["<think>", "</think>"])
    return wrap_model(Reciting(tokenizer, text, rarely), tokenizer, name=name)
