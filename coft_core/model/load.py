"""Loading any Hugging Face causal language model, with errors that say what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from coft_core.assets import assets_path
from coft_core.errors import ModelLoadError
from coft_core.model.language_model import (
    PREFILL_TOKENS,
    SNAPSHOT_BYTES,
    LanguageModel,
    tokenizer_digest,
    weights_digest,
)
from coft_core.model.llama_engine import LlamaEngine, file_digest, gguf_file, llama_cpp
from coft_core.model.loading import LoadingPhase, LoadingProgress, explain
from coft_core.model.needs import needs_of, read_bandwidth
from coft_core.model.noise import measure_noise
from coft_core.model.packed import PACKED_BYTES, pack_linears
from coft_core.model.placement import Placement, checkpoint_quantization, input_device, places
from coft_core.model.requirements import (
    brings_its_class,
    loader_of,
    output_width,
    require_all_weights,
    require_causal,
    require_causal_behaviour,
    require_independent_rows,
    require_offsets,
    require_possible_size,
    require_same_tokens,
    require_same_vocabulary,
    require_steps,
    require_whole_files,
)

DEMO = "demo"
MIXTURE = "demo-moe"
"""A mixture of experts of random weights with the embedded model's tokenizer, made in memory to be timed."""
HUB_SECONDS = 10.0
GGUF = ".gguf"
LONGEST_NAME = 4096
"""Characters of a model's name or path."""
DESCRIBING = frozenset({"model_type", "architectures", "auto_map"})
"""Keys by which a configuration is known as that of a model."""
CONTEXT_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
"""Where configurations say how long a text may be, the first that is there."""
SINGLE_FILES = (".ggml", ".bin", ".pt", ".pth", ".safetensors", ".onnx")
"""Ends of files that hold a model by themselves."""


def load_model(
    name_or_path: str = DEMO,
    device: str = "auto",
    dtype: str | torch.dtype = "auto",
    revision: str | None = None,
    chat: bool | None = None,
    *,
    device_map: str | Mapping[str, int | str] | None = None,
    max_memory: str | Mapping[int | str, int | str] | None = None,
    offload_folder: str | None = None,
    tensor_parallel: int = 1,
    quantization: str = "none",
    prefill_tokens: int = PREFILL_TOKENS,
    packed_bytes: int = PACKED_BYTES,
    snapshot_bytes: int = SNAPSHOT_BYTES,
    trusted: Collection[str] = (),
    progress: LoadingProgress | None = None,
) -> LanguageModel:
    """Load a causal language model and its fast tokenizer.

    Args:
        name_or_path: Hub id, local folder, GGUF file or a folder with one (llama.cpp runs it at its own precision), or
            ``"demo"`` for the embedded model; ``"demo-moe"`` is a mixture of experts of random weights.
        device: ``"auto"`` (CUDA if there is one), or a torch device.
        dtype: A floating type or its name, or ``"auto"``: bfloat16 on CUDA; on a processor that multiplies bfloat16
            by itself the same for weights that are stored in it, else float32.
        revision: Branch, tag or commit on the hub; ``"main"`` by default.
        chat: Whether prompts go through the chat template; None uses it when the tokenizer has one.
        device_map: Spreads the model over several devices, layer by layer: ``"auto"``, ``"balanced"``,
            ``"balanced_low_0"``, ``"sequential"``, or parts of the model with their devices (a number, ``"cpu"`` or
            ``"disk"``), as a mapping or as JSON. None puts it on ``device``.
        max_memory: Memory of each device that a device map may fill, such as ``{0: "20GiB", "cpu": "60GiB"}``, as a
            mapping or as JSON; what is left is for keys, values and activations.
        offload_folder: Where weights on the disk are written if their file cannot be read in place.
        tensor_parallel: Devices over which each matrix is split; the program must be started by ``torchrun`` with as
            many processes, which all load the model and run it with the same tokens.
        quantization: ``"none"``, ``"8bit"`` or ``"4bit"``: on a processor integers that PyTorch's own operators
            multiply by bfloat16 rows, on a GPU torchao's 8 bits (weights only) or bitsandbytes' NF4.
        prefill_tokens: Tokens, over all rows, that one forward reads at most.
        packed_bytes: On a CPU the weights of linear layers are held a second time, in the order in which one or two
            rows are multiplied fastest, unless they are larger than this; 0 never does.
        snapshot_bytes: Bytes of copies of states that one batch of branches holds at most, where layers keep states.
        trusted: Names of models, as they are given here, that may run code of their own, with all rights of this
            program; others never do, and nobody is asked.
        progress: Told of each phase as it begins, and before the weights are read of what a processor will need.

    Raises:
        ModelLoadError: The model cannot be had, held or decoded step by step, or the choices of where and how to hold
            it exclude each other; the sentence says why, and what to do.
    """
    if prefill_tokens < 1:
        raise ModelLoadError(f"A forward cannot read {prefill_tokens} tokens; give at least 1.")
    placement = Placement(device, dtype, device_map, max_memory, offload_folder, tensor_parallel, quantization)
    told = progress or (lambda phase: None)
    if name_or_path == MIXTURE:
        return _made_mixture(placement, told)
    source = model_source(name_or_path)
    if (file := gguf_file(source)) is not None:
        return _load_gguf(file, name_or_path, placement, chat, told)
    where: dict[str, Any] = {
        "revision": revision or "main",
        "local_files_only": only_local(source, revision),
        # Said outright: left open, transformers asks on the terminal whether a checkpoint's own code may run.
        "trust_remote_code": name_or_path in trusted,
    }
    try:
        told(LoadingPhase.TOKENIZER)
        config = AutoConfig.from_pretrained(source, **where)
        if not brings_its_class(config, where["trust_remote_code"]):
            require_causal(name_or_path, config)
        require_possible_size(name_or_path, config)
        placed = placement.arguments(name_or_path, config)
        tokenizer = AutoTokenizer.from_pretrained(source, use_fast=True, **where)
        require_offsets(name_or_path, tokenizer)
        require_whole_files(name_or_path, source)
        if placed.get("device_map") == {"": torch.device("cpu")} and not where["trust_remote_code"]:
            told(needs_of(config, placed, packed_bytes, read_bandwidth()))
        told(LoadingPhase.WEIGHTS)
        loaded: Any = loader_of(config).from_pretrained(
            source, use_safetensors=True, output_loading_info=True, **placed, **where
        )
        module, loading = loaded
        require_all_weights(name_or_path, loading)
        module.requires_grad_(False)
        module.eval()
        model = _checked(module, tokenizer, name_or_path, revision or "main", chat, told)
        limits = {"prefill_tokens": prefill_tokens, "snapshot_bytes": snapshot_bytes}
        model = replace(model, places=places(module, tensor_parallel), **limits)
        pack_linears(model, packed_bytes)
        measure_noise(model)
        return model
    except ModelLoadError:
        raise
    except Exception as error:
        # What a checkpoint's files make others raise has no end: damaged weights, shapes and entries of any kind.
        raise ModelLoadError(explain(name_or_path, error, quantization, may_be_trusted=True)) from error


def _made_mixture(placement: Placement, told: LoadingProgress) -> LanguageModel:
    """Mixtral's architecture in small, eight experts of which two read each token; the same weights every time."""
    if placement.quantization != "none" or placement.device_map or placement.tensor_parallel > 1:
        raise ModelLoadError(f"{MIXTURE!r} is made in memory as it is; leave quantization and maps out.")
    told(LoadingPhase.TOKENIZER)
    tokenizer: Any = AutoTokenizer.from_pretrained(model_source(DEMO), use_fast=True, local_files_only=True)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    sizes = {"hidden_size": 320, "intermediate_size": 512, "num_hidden_layers": 6}
    heads = {"num_attention_heads": 5, "num_key_value_heads": 5}
    config: Any = AutoConfig.for_model(
        "mixtral", vocab_size=len(tokenizer), max_position_embeddings=4096, **sizes, **heads, **ends
    )
    placed = placement.arguments(MIXTURE, config)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module: Any = AutoModelForCausalLM.from_config(config)
    module = module.to(device=placed["device_map"][""], dtype=placed["dtype"]).eval().requires_grad_(False)
    model = _checked(module, tokenizer, MIXTURE, "main", False, told)
    measure_noise(model)
    return model


def _load_gguf(file: Path, name: str, placement: Placement, chat: bool | None, told: LoadingProgress) -> LanguageModel:
    """The model of a GGUF file, run by llama.cpp."""
    if placement.quantization != "none" or placement.device_map or placement.tensor_parallel > 1:
        raise ModelLoadError(f"{name!r} is a GGUF file, which has its own precision; leave quantization and maps out.")
    llama_cpp(name)
    try:
        told(LoadingPhase.TOKENIZER)
        tokenizer: Any = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, use_fast=True)
        require_offsets(name, tokenizer)
        told(LoadingPhase.WEIGHTS)
        engine = LlamaEngine(file, name, on_gpu=placement.device != "cpu")
        require_same_tokens(name, engine, tokenizer)
        require_same_vocabulary(name, len(tokenizer), engine.vocabulary_size)
        told(LoadingPhase.DIGEST)
        model = LanguageModel(
            name=name,
            revision="main",
            module=engine,
            tokenizer=tokenizer,
            device=torch.device("cpu"),
            dtype=torch.float32,
            context_length=engine.context_length,
            vocabulary_size=engine.vocabulary_size,
            end_token_ids=engine.end_tokens,
            chat=bool(tokenizer.chat_template) if chat is None else chat,
            weights_digest=file_digest(file),
            tokenizer_digest=tokenizer_digest(tokenizer),
            places=("cpu",),
            quantization=engine.quantization,
        )
        told(LoadingPhase.WARM_UP)
        require_independent_rows(model)
        require_steps(model)
        measure_noise(model)
        return model
    except ModelLoadError:
        raise
    except Exception as error:
        # A damaged file makes the readers of its tokens raise anything.
        raise ModelLoadError(explain(name, error)) from error


def wrap_model(
    module: Any,
    tokenizer: Any,
    name: str,
    revision: str = "main",
    chat: bool | None = None,
    progress: LoadingProgress | None = None,
) -> LanguageModel:
    """Check a module and a tokenizer that are in memory already, and make a :class:`LanguageModel` of them."""
    model = _checked(module, tokenizer, name, revision, chat, progress or (lambda phase: None))
    measure_noise(model)
    return model


def _checked(
    module: Any, tokenizer: Any, name: str, revision: str, chat: bool | None, told: LoadingProgress
) -> LanguageModel:
    """The model of a module and a tokenizer that belong together."""
    require_offsets(name, tokenizer)
    vocabulary = output_width(name, module)
    require_same_vocabulary(name, len(tokenizer), vocabulary)
    if chat and not tokenizer.chat_template:
        raise ModelLoadError(f"{name!r} has no chat template; load it with chat=False.")
    told(LoadingPhase.DIGEST)
    digest = weights_digest(module)
    told(LoadingPhase.WARM_UP)
    require_causal_behaviour(name, module, vocabulary)
    model = LanguageModel(
        name=name,
        revision=revision,
        module=module,
        tokenizer=tokenizer,
        device=input_device(module),
        dtype=next(p.dtype for p in module.parameters() if p.is_floating_point()),
        context_length=_context_length(module.config, tokenizer),
        vocabulary_size=vocabulary,
        end_token_ids=_end_tokens(module, tokenizer),
        chat=bool(tokenizer.chat_template) if chat is None else chat,
        weights_digest=digest,
        tokenizer_digest=tokenizer_digest(tokenizer),
        places=places(module),
        quantization=checkpoint_quantization(module.config) or "none",
    )
    require_independent_rows(model)
    require_steps(model)
    return model


def model_source(name_or_path: str) -> str:
    """What the libraries are asked for by a model's name: a hub id, a folder or a file."""
    if not name_or_path.strip():
        raise ModelLoadError("The model name is empty; give a hub id, a folder, or 'demo'.")
    if len(name_or_path) > LONGEST_NAME:
        raise ModelLoadError(
            f"The model name has {len(name_or_path):,} characters and at most {LONGEST_NAME:,} are read; check it."
        )
    if name_or_path == DEMO:
        return str(assets_path("models", "demo"))
    if (path := _folder(name_or_path)) is not None:
        return path
    if (file := gguf_file(name_or_path)) is not None:
        return str(file)
    if Path(name_or_path).suffix.lower() == GGUF:
        raise ModelLoadError(f"The file {name_or_path!r} holds no model that can be read here; check the path.")
    if Path(name_or_path).suffix.lower() in SINGLE_FILES:
        raise ModelLoadError(
            f"{name_or_path!r} names a file, and of single files only GGUF is read; give the folder of a model "
            "that transformers has saved (config.json, tokenizer.json and safetensors)."
        )
    typed = Path(name_or_path)
    if typed.is_absolute() or ".." in typed.parts or name_or_path.startswith((".", "~")):
        # Whoever may type a model's name need not know this computer's folders: what is missing, is no model and may
        # not be read is told alike.
        raise ModelLoadError(
            f"The folder {name_or_path!r} holds no model that can be read here; give one that transformers has saved "
            "(config.json, tokenizer.json and safetensors), and check the path."
        )
    return name_or_path


def _folder(name_or_path: str) -> str | None:
    """The folder of a saved model; None where there is none that can be read, or the files are another program's."""
    try:
        path = Path(name_or_path).expanduser()
        file = path / "config.json"
        config = json.loads(file.read_text("utf-8")) if file.is_file() else None
    except (OSError, RuntimeError, ValueError):
        # A folder that may not be entered, a home of nobody, a name with a NUL or too long for a path, no JSON.
        return None
    return str(path) if isinstance(config, dict) and not DESCRIBING.isdisjoint(config) else None


def only_local(source: str, revision: str | None) -> bool:
    """Ask the hub once, quickly: without it every file would be tried again and again before the cache is read."""
    if os.path.isdir(source):  # Of a name that is too long for a path it says no.
        return True
    try:
        HfApi().model_info(source, revision=revision, timeout=HUB_SECONDS)
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise ModelLoadError(explain(source, error)) from error
    except Exception:
        # Whatever keeps the hub from answering (no network, a proxy, offline mode), the cache may have the model; if
        # it has not, loading says that the hub cannot be reached.
        return True
    return False


def _context_length(config: Any, tokenizer: Any) -> int:
    text_config = config.get_text_config(decoder=True)
    for attribute in CONTEXT_LENGTHS:
        if value := getattr(text_config, attribute, None):
            return int(value)
    return int(min(tokenizer.model_max_length, 1 << 20))


def _end_tokens(module: Any, tokenizer: Any) -> frozenset[int]:
    configured = getattr(module.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(int(i) for i in [*ids, tokenizer.eos_token_id] if i is not None)
