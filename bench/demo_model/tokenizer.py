"""Byte-level BPE tokenizer of the demonstration model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END, PAD, MASK = "<|endoftext|>", "<pad>", "<mask>"
END_ID, PAD_ID, MASK_ID = 0, 1, 2
CONTEXT_LENGTH = 512


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Trains the tokenizer.

    Offsets tile the text: a token that begins with a space includes that space. All 256 bytes are in the
    alphabet, so that every text round-trips. No token is added at the beginning or the end of a text.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in (END, PAD, MASK)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Saves the tokenizer so that `AutoTokenizer.from_pretrained(folder)` loads it without a network.

    The class is named as earlier releases of transformers know it too.
    """
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        mask_token=MASK,
        model_max_length=CONTEXT_LENGTH,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
