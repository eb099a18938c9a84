"""Loading any Hugging Face causal language model, with errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from coft_core.assets import assets_path
from coft_core.engine.digest import tokenizer_digest, weights_digest
from coft_core.engine.model import LanguageModel
from coft_core.errors import ModelLoadError

DEMO = "demo"
HUB_SECONDS = 10.0
PADDING_SHARE = 0.05
"""Checkpoints pad their embedding up to a round number; more than this share is another vocabulary."""


def load_model(
    name_or_path: str = DEMO,
    device: str = "auto",
    dtype: str | torch.dtype = "auto",
    revision: str | None = None,
    chat: bool | None = None,
) -> LanguageModel:
    """Load a causal language model and its fast tokenizer.

    Args:
        name_or_path: Hub id, local folder, or ``"demo"`` for the embedded model.
        device: ``"auto"`` (CUDA if there is one), or a torch device.
        dtype: ``"auto"`` (bfloat16 on CUDA, float32 elsewhere), or a floating type or its name.
        revision: Branch, tag or commit on the hub; ``"main"`` by default.
        chat: Whether prompts go through the chat template; None uses it when the tokenizer has one.

    Returns:
        The model, frozen and in evaluation mode.

    Raises:
        ModelLoadError: The model is missing, gated or no causal language model, its tokenizer gives no character
            offsets, or tokenizer and model have different vocabularies.
    """
    source = _source(name_or_path)
    chosen_device = _device(device)
    chosen_dtype = _dtype(dtype, chosen_device)
    where: dict[str, Any] = {"revision": revision or "main", "local_files_only": _only_local(source, revision)}
    try:
        config = AutoConfig.from_pretrained(source, **where)
        _require_causal(name_or_path, config)
        tokenizer = AutoTokenizer.from_pretrained(source, use_fast=True, **where)
        _require_offsets(name_or_path, tokenizer)
        module: Any = AutoModelForCausalLM.from_pretrained(source, dtype=chosen_dtype, **where)
    except ModelLoadError:
        raise
    except (OSError, ValueError, KeyError, ImportError, json.JSONDecodeError) as error:
        raise ModelLoadError(_explain(name_or_path, error)) from error
    module.requires_grad_(False)
    return wrap_model(module.eval().to(chosen_device), tokenizer, name_or_path, revision or "main", chat)


def wrap_model(
    module: Any,
    tokenizer: Any,
    name: str,
    revision: str = "main",
    chat: bool | None = None,
) -> LanguageModel:
    """Check a module and a tokenizer that are in memory already, and make a :class:`LanguageModel` of them.

    Raises:
        ModelLoadError: As in :func:`load_model`.
    """
    _require_offsets(name, tokenizer)
    vocabulary = int(module.get_output_embeddings().weight.shape[0])
    _require_same_vocabulary(name, len(tokenizer), vocabulary)
    _require_causal_behaviour(name, module, vocabulary)
    if chat and not tokenizer.chat_template:
        raise ModelLoadError(f"{name!r} has no chat template; load it with chat=False.")
    parameter = next(module.parameters())
    return LanguageModel(
        name=name,
        revision=revision,
        module=module,
        tokenizer=tokenizer,
        device=parameter.device,
        dtype=parameter.dtype,
        context_length=_context_length(module.config, tokenizer),
        vocabulary_size=vocabulary,
        end_token_ids=_end_tokens(module, tokenizer),
        chat=bool(tokenizer.chat_template) if chat is None else chat,
        weights_digest=weights_digest(module),
        tokenizer_digest=tokenizer_digest(tokenizer),
    )


def _source(name_or_path: str) -> str:
    if not name_or_path.strip():
        raise ModelLoadError("The model name is empty; give a hub id, a folder, or 'demo'.")
    if name_or_path == DEMO:
        return str(assets_path("models", "demo"))
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelLoadError(f"The folder {name_or_path!r} has no config.json; give a saved model's folder.")
        return str(path)
    if path.is_absolute() or name_or_path.startswith((".", "~")):
        raise ModelLoadError(f"The folder {name_or_path!r} does not exist; check the path.")
    return name_or_path


def _only_local(source: str, revision: str | None) -> bool:
    """Ask the hub once, quickly: without it every file would be tried again and again before the cache is read.

    Raises:
        ModelLoadError: The hub answers that there is no such model or revision.
    """
    if Path(source).is_dir():
        return True
    try:
        HfApi().model_info(source, revision=revision, timeout=HUB_SECONDS)
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise ModelLoadError(_explain(source, error)) from error
    except Exception:
        # Whatever keeps the hub from answering (no network, a proxy, offline mode), the cache may have the model; if
        # it has not, loading says that the hub cannot be reached.
        return True
    return False


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ModelLoadError(f"{device!r} is no device; use 'auto', 'cpu' or 'cuda'.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError("There is no CUDA device here; use device='cpu' or 'auto'.")
    return chosen


def _dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    chosen = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(chosen, torch.dtype) or not chosen.is_floating_point:
        raise ModelLoadError(f"{dtype!r} is no floating type; use 'auto', 'float32', 'bfloat16' or 'float16'.")
    return chosen


def _require_causal(name: str, config: Any) -> None:
    architectures = list(getattr(config, "architectures", None) or [])
    causal = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    wrong = getattr(config, "is_encoder_decoder", False) or (architectures and not causal & set(architectures))
    if wrong:
        kind = architectures[0] if architectures else type(config).__name__
        raise ModelLoadError(f"{name!r} is a {kind}, not a causal language model; choose a decoder-only model.")


def _require_offsets(name: str, tokenizer: Any) -> None:
    if not getattr(tokenizer, "is_fast", False):
        raise ModelLoadError(
            f"{name!r} has only a slow tokenizer, which gives no character offsets for masking; "
            "choose a model with a tokenizer.json."
        )


def _require_same_vocabulary(name: str, tokenizer: int, model: int) -> None:
    if tokenizer > model or model - tokenizer > PADDING_SHARE * tokenizer:
        raise ModelLoadError(
            f"{name!r} has a tokenizer of {tokenizer:,} tokens and a model of {model:,}; "
            "both must come from the same checkpoint."
        )


def _require_causal_behaviour(name: str, module: Any, vocabulary: int) -> None:
    """Change the last token: in a causal model no earlier logit may move."""
    if getattr(module, "_is_stateful", False):
        raise ModelLoadError(
            f"{name!r} keeps a recurrent state, which cannot be cropped for stepping back; choose an attention model."
        )
    device = next(module.parameters()).device
    ids = torch.tensor([[1, 2, 3], [1, 2, min(4, vocabulary - 1)]], device=device) % vocabulary  # (2, 3)
    with torch.inference_mode():
        logits = module(input_ids=ids, use_cache=False).logits.float()  # (2, 3, V)
    if not torch.allclose(logits[0, :2], logits[1, :2], atol=1e-2, rtol=1e-2):
        raise ModelLoadError(f"{name!r} looks at later tokens, so it is no causal language model; choose another.")


def _context_length(config: Any, tokenizer: Any) -> int:
    text_config = config.get_text_config(decoder=True)
    for attribute in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        if value := getattr(text_config, attribute, None):
            return int(value)
    return int(min(tokenizer.model_max_length, 1 << 20))


def _end_tokens(module: Any, tokenizer: Any) -> frozenset[int]:
    configured = getattr(module.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(int(i) for i in [*ids, tokenizer.eos_token_id] if i is not None)


def _explain(name: str, error: Exception) -> str:
    chain: list[BaseException] = [error]
    while (below := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(below)
    kinds = {type(e).__name__ for e in chain}
    text = " ".join(str(error).split())
    if "GatedRepoError" in kinds or "gated repo" in text:
        return f"{name!r} is gated; accept its terms on its page, then log in with 'hf auth login'."
    if "RevisionNotFoundError" in kinds:
        return f"{name!r} has no such revision; check the branch, tag or commit."
    if kinds & {"RepositoryNotFoundError", "HFValidationError"} or "not a valid model identifier" in text:
        return f"There is no model {name!r}; check the id, or give the path of a local folder."
    if kinds & {
        "LocalEntryNotFoundError",
        "OfflineModeIsEnabled",
        "ConnectError",
        "ConnectionError",
        "ConnectTimeout",
    }:
        return f"{name!r} is not on this computer and the hub cannot be reached; go online or give a local folder."
    return f"{name!r} cannot be loaded: {text[:300]}"
