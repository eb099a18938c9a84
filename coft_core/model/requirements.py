"""What a model and its tokenizer must be to be audited step by step.

Whatever they lack is a :class:`ModelLoadError` of one sentence.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

from coft_core.errors import CoftError, ModelLoadError
from coft_core.model.branches import BranchBatch
from coft_core.model.language_model import LanguageModel
from coft_core.model.loading import explain, first_line, out_of_memory
from coft_core.model.memory_fit import fit_of, keep_fit, with_states
from coft_core.model.noise import LEAST_LOG_P
from coft_core.model.placement import input_device

PADDING_SHARE = 0.05
"""Checkpoints pad their embedding up to a round number; more than this share is another vocabulary."""

STEP_ERROR, STEP_ERROR_16_BIT = 0.01, 0.25
"""Root mean square error of stepped logits over their spread that sums in another order stay below, and the same for
shorter types, in which a router of experts may choose otherwise; wiped keys gave 0.47 to 1.26."""

_CAUSAL = frozenset(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
_WITH_OTHER_INPUTS = frozenset(
    name
    for names in (
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )
    for name in names.values()
)


def brings_its_class(config: Any, trusted: bool) -> bool:
    """Whether a trusted model has a causal class of its own, of which nothing is known before it is run."""
    return trusted and "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})


def loader_of(config: Any) -> Any:
    """The class of transformers that loads a configuration's model: as one of text alone where there is one.

    A model that reads images or sound besides text is else loaded whole, and is given text alone.
    """
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM
    if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return AutoModelForImageTextToText
    return AutoModelForMultimodalLM if type(config) in MODEL_FOR_MULTIMODAL_LM_MAPPING else AutoModelForCausalLM


def require_causal(name: str, config: Any) -> None:
    """Refuse what a configuration says is not a decoder of text."""
    stated = getattr(config, "architectures", None) or []
    kind = str(stated[0]) if isinstance(stated, (list, tuple)) and stated else type(config).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise ModelLoadError(f"{name!r} is a {kind}, an encoder with a decoder; choose a decoder-only model.")
    # The decoder of text that is part of some models with other inputs can be loaded by itself.
    whole = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING or type(config) in MODEL_FOR_MULTIMODAL_LM_MAPPING
    other_inputs, causal = kind in _WITH_OTHER_INPUTS, kind in _CAUSAL or kind.endswith("ForCausalLM")
    if whole and other_inputs:
        return
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and (not stated or causal or other_inputs):
        return
    version, why = transformers.__version__, "not a causal language model; choose a decoder-only model."
    if other_inputs:
        why = (
            f"which reads images or sound besides text, and of which transformers {version} cannot load the text part "
            "alone; choose a model of text alone."
        )
    elif kind.endswith("ForCausalLM"):
        why = f"which transformers {version} does not have; choose another model."
    raise ModelLoadError(f"{name!r} is a {kind}, {why}")


LARGEST: dict[str, int] = {
    "num_hidden_layers": 2048,
    "hidden_size": 1 << 18,
    "intermediate_size": 1 << 22,
    "num_attention_heads": 1 << 14,
    "num_key_value_heads": 1 << 14,
    "head_dim": 1 << 16,
    "vocab_size": 1 << 24,
    "num_experts": 1 << 16,
    "num_local_experts": 1 << 16,
    "max_position_embeddings": 1 << 28,
}
"""What a configuration may say at most: ten times and more of what any published model has."""

MOST_NUMBERS = 1 << 45
"""Weights that the embedding, or the squares of all layers, may have at most together."""


def require_possible_size(name: str, config: Any) -> None:
    """Refuse a configuration of a size that no model has, before memory is taken for its layers."""
    text = config.get_text_config(decoder=True)
    stated = {field: value for field in LARGEST if isinstance(value := getattr(text, field, None), int)}
    width = stated.get("hidden_size", 0)
    weights = max(stated.get("vocab_size", 0) * width, stated.get("num_hidden_layers", 0) * width * width)
    wrong = [f"{field} {value:,}" for field, value in stated.items() if not 0 <= value <= LARGEST[field]]
    if wrong or weights > MOST_NUMBERS:
        raise ModelLoadError(
            f"{name!r} cannot be loaded: its config.json asks for a size that no model has "
            f"({', '.join(wrong) or f'{weights:,} weights'}); take the configuration from the checkpoint's publisher."
        )


def require_whole_files(name: str, source: str) -> None:
    """Refuse a folder whose weights are not in safetensors, or begin with damage, before other models have to go."""
    folder = Path(source)
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    if folder.is_dir() and not files:
        raise ModelLoadError(explain(name, FileNotFoundError("no safetensors")))
    for file in files:
        try:
            with safe_open(file, "pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise ModelLoadError(
                f"The weights of {name!r} are damaged ({file.name}: {error}); fetch them again."
            ) from error


def require_all_weights(name: str, loading: Any) -> None:
    """Refuse a model of which transformers made some weights up."""
    if missing := sorted(loading["missing_keys"]):
        raise ModelLoadError(
            f"{name!r} cannot be loaded: its files lack {len(missing)} of its weights, such as {missing[0]!r}; fetch "
            "them again, or choose another checkpoint."
        )


def require_offsets(name: str, tokenizer: Any) -> None:
    """Refuse a tokenizer that does not say which characters a token is of."""
    if not getattr(tokenizer, "is_fast", False):
        raise ModelLoadError(
            f"{name!r} has only a slow tokenizer, which gives no character offsets for masking; "
            "choose a model with a tokenizer.json."
        )


TRIED = (
    "The nurse finished rounds and then he prepared the reports.",
    "Résumé: 12 years, naïve café — “quoted”, 3.5 % of £1,200",
    "  two  spaces\nand\ta new line\n\n",
    "日本語と한국어 и кириллица, العربية 🙂",
    "don't WE'LL they've I'm x=y+1; def f(a):\n    return a",
)
"""Texts on which both tokenizers must agree."""


def require_same_tokens(name: str, engine: Any, tokenizer: Any) -> None:
    """Refuse an engine that makes other tokens of a text than the tokenizer in which marked words are found."""
    for text in TRIED:
        ours, theirs = tokenizer.encode(text, add_special_tokens=False), engine.encode(text)
        if ours != theirs:
            raise ModelLoadError(
                f"{name!r} cannot be audited: transformers and {engine.title} make different tokens of {text!r} "
                f"({len(ours)} and {len(theirs)}), so that marked words could not be found; load its safetensors."
            )


def output_width(name: str, module: Any) -> int:
    """The number of tokens that a model's logits are over."""
    head = module.get_output_embeddings()
    width = getattr(head, "out_features", None)
    if width is None and getattr(head, "weight", None) is None:
        raise ModelLoadError(f"{name!r} has no head that gives logits over tokens; choose a causal language model.")
    return int(width or head.weight.shape[0])


def require_same_vocabulary(name: str, tokenizer: int, model: int) -> None:
    """Refuse a tokenizer and a model of different numbers of tokens, but for an embedding's padding."""
    if tokenizer > model or model - tokenizer > PADDING_SHARE * tokenizer:
        raise ModelLoadError(
            f"{name!r} has a tokenizer of {tokenizer:,} tokens and a model of {model:,}; "
            "both must come from the same checkpoint."
        )


def require_causal_behaviour(name: str, module: Any, vocabulary: int) -> None:
    """Change the last token: in a causal model no earlier logit may move."""
    ids = torch.tensor([[1, 2, 3], [1, 2, min(4, vocabulary - 1)]]) % vocabulary  # (2, 3)
    try:
        with torch.inference_mode():
            ids = ids.to(input_device(module))
            logits = module(input_ids=ids, use_cache=False).logits  # (2, 3, V)
    except Exception as error:
        # What an architecture raises that needs an image, or anything else besides text, is known only by trying.
        if out_of_memory(error):
            raise
        raise ModelLoadError(
            f"{name!r} cannot be run over text alone ({type(error).__name__}: {first_line(error)}); choose a model "
            "that reads nothing else."
        ) from error
    if logits.isnan().any():
        dtype = str(logits.dtype).removeprefix("torch.")
        raise ModelLoadError(
            f"{name!r} gives logits that are no numbers: its weights are damaged, or too large for {dtype}; fetch them "
            "again, or give another dtype."
        )
    logits = logits.float()
    if not torch.allclose(logits[0, :2], logits[1, :2], atol=1e-2, rtol=1e-2):
        raise ModelLoadError(f"{name!r} looks at later tokens, so it is no causal language model; choose another.")


def require_steps(model: LanguageModel) -> None:
    """Step over a few tokens, go back, and step again: each time the logits must be those of reading the text again.

    Where keys and values that grow do not give them, copied states are tried.
    """
    fit = fit_of(model)
    if fit.kind == "slots":
        # To find that out, the same was compared.
        return
    reason = _why_not_stepped(model)
    if reason and fit.kind == "growing":
        keep_fit(model, fit := with_states(model, f"with keys and values that grow, {reason}"))
        reason = _why_not_stepped(model) and reason
    if reason and fit.state:
        # Some step one row rightly, and mix the rows of a batch.
        keep_fit(model, replace(fit, alone=True))
        reason = _why_not_stepped(model) and reason
    if reason:
        raise ModelLoadError(
            f"{model.name!r} cannot be decoded step by step: {reason}; choose a model that can go on from the tokens "
            "that it has read."
        )


def _why_not_stepped(model: LanguageModel) -> str:
    """What is wrong when a model steps with the memory that fits it, as half a sentence; empty if nothing is."""
    fit = fit_of(model)
    takes_none = "its forward takes nothing of earlier tokens"
    if model.engine is None and not fit.state:
        return takes_none
    try:
        agree = _steps_agree(model)
    except Exception as error:
        # What an architecture that was not made for it raises is known only by trying.
        if isinstance(error, CoftError) or out_of_memory(error):
            raise
        if model.engine is None and fit.state not in fit.accepts:
            return takes_none
        return f"it fails when it goes on from what it keeps ({type(error).__name__}: {first_line(error)})"
    return "" if agree else "from what it keeps of earlier tokens it gives other logits than from the whole text"


NEIGHBOURS = 6
"""Texts beside which a row is read in turn."""

LEAST_COUPLING, LEAST_COUPLING_16_BIT = 1e-3, 0.01
"""Nats by which a row may move whatever is beside it: sums in another order, where experts take other tokens."""


def require_independent_rows(model: LanguageModel) -> None:
    """Refuse quantised weights with which a row's logits depend on what else is in its batch.

    Kernels may take a scale from the whole batch. How far a row moves beside several others in turn is compared with
    how far it moves where the same rows only change places, which no such scale sees.
    """
    if model.quantization == "none":
        return

    def read(rows: list[Tensor], place: int) -> Tensor:
        return torch.log_softmax(model.plain_logits(torch.cat(rows))[place].float(), dim=-1)  # (L, V)

    def apart(one: Tensor, other: Tensor) -> float:
        return float((one - other).abs()[other > LEAST_LOG_P].max())

    texts = model.arbitrary_tokens(NEIGHBOURS + 1, min(_INDEPENDENT_TOKENS, model.context_length - 1), seed=2)
    first, others = texts[:1], texts[1:]
    beside = [read([first, other[None]], 0) for other in others]
    moved = max(apart(each, beside[0]) for each in beside)
    least = LEAST_COUPLING if model.dtype.itemsize >= 4 else LEAST_COUPLING_16_BIT
    if moved > max(least, 4 * apart(read([others[:1], first], 1), beside[0])):
        raise ModelLoadError(
            f"{model.name!r} cannot be audited with {model.quantization} weights: what else is in a batch moved a "
            f"row's log-probabilities by {moved:.2g}, so that the branches of an audit would feel each other; load "
            "it with whole weights, or quantised otherwise."
        )


_INDEPENDENT_TOKENS = 12


def _steps_agree(model: LanguageModel) -> bool:
    stepped, expected = _stepped(model)  # (8, R, V) each
    spread = (expected - expected.mean(-1, keepdim=True)).norm()
    limit = STEP_ERROR if model.dtype.itemsize >= 4 else STEP_ERROR_16_BIT
    return bool((stepped - expected).norm() <= limit * spread + 1e-3)


def _stepped(model: LanguageModel) -> tuple[Tensor, Tensor]:
    """Stepped and plain logits, ``(8, R, V)`` each, of two rows of one length, as branches are, and of unequal ones."""
    longest = max(1, min(7, model.context_length - 3))
    first, second = model.arbitrary_tokens(2, longest).tolist()
    even, uneven = (_stepped_rows(model, [first, second[:length]]) for length in (longest, max(1, longest - 3)))
    return torch.cat([even[0], uneven[0]]), torch.cat([even[1], uneven[1]])


def _stepped_rows(model: LanguageModel, prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """After the prompts, two steps, and another step after going back, and the plain ones, ``(4, R, V)`` each."""
    first, second, other = model.arbitrary_tokens(3, 1, seed=1).to(model.device)
    batch = BranchBatch(model, prompts)
    stepped = [batch.logits()]
    for token in (first, second):
        batch.append(token.expand(2))
        stepped.append(batch.logits())
    batch.crop(1)
    batch.append(other.expand(2))
    stepped.append(batch.logits())
    batch.close()
    written = [[int(first), int(second)], [int(first), int(other)]]
    read_anew = [torch.cat([_plain(model, [*prompt, *tail]) for tail in written])[[0, 1, 2, 5]] for prompt in prompts]
    return torch.stack(stepped).float(), torch.stack(read_anew, dim=1)


def _plain(model: LanguageModel, ids: list[int]) -> Tensor:
    """Logits of a text's last three positions, read again, ``(3, V)``."""
    return model.plain_logits(torch.tensor([ids]))[0, -3:].float().to(model.device)
