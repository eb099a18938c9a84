"""Where a model's weights are put and in which form: one device or several, split or whole, quantised or not."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from coft_core.errors import ModelLoadError
from coft_core.model.int_weights import METHOD, IntWeights

PACKED_TYPES = (torch.float32, torch.bfloat16)
"""Number types for which oneDNN has an order of its own for weights."""

ROWS = 2
"""Rows for which oneDNN chooses the order: the branches of an audit."""

NATIVE_BFLOAT16 = ("avx512_bf16", "amx_bf16")
"""Processor features with which 16-bit products are no slower than 32-bit ones (measured by ``bench.dtypes``)."""

_TRIED = 16
_backends: Any = torch.backends
_onednn: Any = torch.ops.mkldnn


def packed_weights(weight: Tensor) -> Tensor:
    """Weights ``(out, in)`` in the order in which oneDNN multiplies a few rows by them."""
    packed: Tensor = _onednn._reorder_linear_weight(weight.detach(), ROWS)
    return packed


def packed_product(rows: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """The product of rows ``(..., in)`` with packed weights, ``(..., out)``."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
    return product


@cache
def packs_single_rows() -> bool:
    """Whether a single row too is multiplied faster by packed weights, by measurement."""
    return bool(torch.cpu.get_capabilities().get("avx512_f", False))


@cache
def why_not_packed(dtype: torch.dtype) -> str:
    """Why weights of a number type are not packed here, as half a sentence; empty if a small product is right."""
    if not _backends.mkldnn.is_available():
        return "this build of PyTorch has no oneDNN"
    if dtype not in PACKED_TYPES:
        return "only float32 and bfloat16 weights are packed"
    name = str(dtype).removeprefix("torch.")
    # Whole numbers as small as these are exact in every type.
    weight = (torch.arange(_TRIED * _TRIED).reshape(_TRIED, _TRIED) % 7 - 3).to(dtype)
    rows = (torch.arange(ROWS * _TRIED).reshape(ROWS, _TRIED) % 5 - 2).to(dtype)
    try:
        with torch.inference_mode():
            exact = torch.equal(packed_product(rows, packed_weights(weight), None), rows @ weight.T)
    except RuntimeError:
        return f"oneDNN does not pack {name} weights on this processor"
    return "" if exact else f"oneDNN multiplies packed {name} weights wrongly on this processor"


@cache
def multiplies_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 by itself, and oneDNN has it do so."""
    if not _backends.mkldnn.is_available() or not _onednn._is_mkldnn_bf16_supported():
        return False
    features = torch.cpu.get_capabilities()
    return any(features.get(name, False) for name in NATIVE_BFLOAT16)


DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""Ways in which accelerate can work a device map out by itself."""

BITS = {"8bit": 8, "4bit": 4}
QUANTIZATIONS = ("none", *BITS)


@dataclass(frozen=True, slots=True)
class Placement:
    """What was asked for; :func:`coft_core.load_model` says what each field means."""

    device: str = "auto"
    dtype: str | torch.dtype = "auto"
    device_map: str | Mapping[str, int | str] | None = None
    max_memory: str | Mapping[int | str, int | str] | None = None
    offload_folder: str | None = None
    tensor_parallel: int = 1
    quantization: str = "none"

    def arguments(self, name: str, config: Any) -> dict[str, Any]:
        """What ``from_pretrained`` takes for this placement of the model of a name and a configuration."""
        device_map = self._device_map()
        device = _device(self.device)
        integers = self.quantization != "none" and _only_processor(device, device_map)
        dtype = self._integers_dtype() if integers else _dtype(self.dtype, device, config)
        if self.tensor_parallel > 1:
            return {"dtype": dtype, "distributed_config": self._distributed(device_map)}
        arguments: dict[str, Any] = {"dtype": dtype, "device_map": device_map or {"": device}}
        if self.max_memory:
            arguments["max_memory"] = _memory(self.max_memory)
        if self.offload_folder:
            arguments["offload_folder"] = self.offload_folder
        if self.quantization != "none":
            self._require_whole_weights(name, config)
            arguments["quantization_config"] = self._integers(device_map) if integers else self._quantizer(dtype)
        return arguments

    def _device_map(self) -> str | dict[str, int | str] | None:
        if not self.device_map:
            if self.max_memory:
                raise ModelLoadError("Limits of memory need a device map; add device_map='auto'.")
            return None
        if self.device != "auto":
            raise ModelLoadError(
                f"Device {self.device!r} and a device map were both given; leave the device at 'auto', or leave the "
                "map out."
            )
        if isinstance(self.device_map, str) and not self.device_map.lstrip().startswith("{"):
            if self.device_map not in DEVICE_MAPS:
                raise ModelLoadError(
                    f"{self.device_map!r} is no device map; use one of {', '.join(DEVICE_MAPS)}, or a JSON object from "
                    'parts of the model to devices, such as {"": 0}.'
                )
            return self.device_map
        return _explicit(self.device_map)

    def _distributed(self, device_map: object) -> Any:
        """Transformers' description of a model whose matrices are split over the processes of ``torchrun``."""
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if device_map is not None or self.quantization != "none":
            raise ModelLoadError(
                "Tensor parallelism splits every matrix by itself; leave the device map and the quantization out."
            )
        if processes != self.tensor_parallel:
            raise ModelLoadError(
                f"Tensor parallelism over {self.tensor_parallel} devices needs as many processes, and there "
                f"{'is' if processes == 1 else 'are'} {processes}; start the program with "
                f"'torchrun --nproc-per-node {self.tensor_parallel}'."
            )
        from transformers.distributed.configuration_utils import DistributedConfig

        return DistributedConfig(tp_size=self.tensor_parallel)

    def _require_whole_weights(self, name: str, config: Any) -> None:
        if self.quantization not in QUANTIZATIONS:
            raise ModelLoadError(f"{self.quantization!r} is no quantization; use one of {', '.join(QUANTIZATIONS)}.")
        if (stored := checkpoint_quantization(config)) is not None:
            raise ModelLoadError(f"{name!r} is quantised already ({stored}); load it with quantization='none'.")

    def _integers(self, device_map: object) -> IntWeights:
        if device_map is not None:
            raise ModelLoadError(
                "Quantised weights are held whole in a processor's memory; leave the device map out, or use a GPU."
            )
        return IntWeights(BITS[self.quantization])

    def _integers_dtype(self) -> torch.dtype:
        if self.dtype != "auto" and _floating(self.dtype) is not torch.bfloat16:
            raise ModelLoadError(
                f"On a processor, quantised weights are multiplied by bfloat16 numbers and not by {self.dtype}; leave "
                "the type at 'auto', or load the model with quantization='none'."
            )
        return torch.bfloat16

    def _quantizer(self, dtype: torch.dtype) -> Any:
        """On a GPU; only weights are quantised, so that no branch's logits depend on what else is in its batch.

        8 bits are torchao's weight-only form, and 4 bits the NF4 of bitsandbytes (Dettmers et al. 2023, QLoRA), whose
        8-bit form takes out columns of activations by what the whole batch holds.
        """
        if self.quantization == "8bit":
            _require("torchao", "8-bit weights")
            weights_only: Any = importlib.import_module("torchao.quantization").Int8WeightOnlyConfig
            from transformers import TorchAoConfig

            return TorchAoConfig(weights_only())
        _require("bitsandbytes", "4-bit weights")
        from transformers import BitsAndBytesConfig

        build: Any = BitsAndBytesConfig
        return build(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def checkpoint_quantization(config: Any) -> str | None:
    """How a model's weights are quantised, in words such as ``"4-bit"`` or ``"gptq"``; None if they are not."""
    declared = getattr(config, "quantization_config", None)
    if declared is None:
        return None
    settings: dict[str, Any] = declared if isinstance(declared, dict) else declared.to_dict()
    if settings.get("quant_method") == METHOD:
        return f"{settings['bits']}-bit"
    if settings.get("load_in_4bit"):
        return "4-bit"
    if settings.get("load_in_8bit") or "Int8WeightOnly" in str(settings.get("quant_type")):
        return "8-bit"
    method = settings.get("quant_method", "quantised")
    return str(getattr(method, "value", method))


def input_device(module: nn.Module) -> torch.device:
    """Where a module takes its token ids and gives its logits: the main device of one that accelerate has spread."""
    embedding: Any = getattr(module, "get_input_embeddings", lambda: None)()
    for part in (module, embedding):
        device = getattr(getattr(part, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device(_named(device))
    parameter = next(iter(embedding.parameters()), None) if isinstance(embedding, nn.Module) else None
    return (next(module.parameters()) if parameter is None else parameter).device


def places(module: Any, tensor_parallel: int = 1) -> tuple[str, ...]:
    """The devices that hold a model's weights, each once: ``"cuda:0"``, ``"cpu"``, ``"disk"``."""
    if tensor_parallel > 1:
        kind = input_device(module).type
        return tuple(f"{kind}:{rank}" for rank in range(tensor_parallel))
    spread: Mapping[str, Any] = getattr(module, "hf_device_map", None) or {"": input_device(module)}
    names = [str(place) if place == "disk" else _named(place) for place in spread.values()]
    return tuple(dict.fromkeys(names))


def _only_processor(device: torch.device, device_map: str | Mapping[str, int | str] | None) -> bool:
    """Whether a model that is placed like this uses no accelerator."""
    if isinstance(device_map, str):
        return not torch.cuda.is_available()
    places = [device] if device_map is None else [place for place in device_map.values() if place != "disk"]
    return all(_named(place).startswith("cpu") for place in places)


def _explicit(device_map: str | Mapping[str, int | str]) -> dict[str, int | str]:
    try:
        parsed = json.loads(device_map) if isinstance(device_map, str) else dict(device_map)
        if not parsed:
            raise ValueError
        devices = [_named(place) for place in parsed.values() if place != "disk"]
    except (ValueError, TypeError, RuntimeError) as error:
        raise ModelLoadError(
            f"The device map {str(device_map)[:80]!r} cannot be read; give a JSON object from parts of the model to "
            'devices (a number, "cpu" or "disk"), such as {"model.layers.0": 0, "": "cpu"}.'
        ) from error
    for device in devices:
        _device(device)
    return parsed


def _named(place: int | str | torch.device) -> str:
    """A device's full name, without asking whether it is there."""
    return f"cuda:{place}" if isinstance(place, int) else str(torch.device(place))


def _memory(max_memory: str | Mapping[int | str, int | str]) -> dict[int | str, int | str]:
    try:
        limits: dict[int | str, int | str] = json.loads(max_memory) if isinstance(max_memory, str) else dict(max_memory)
        return {int(key) if str(key).isdigit() else key: value for key, value in limits.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelLoadError(
            f"The limits of memory {str(max_memory)[:80]!r} cannot be read; give a JSON object from devices to sizes, "
            'such as {"0": "20GiB", "cpu": "60GiB"}.'
        ) from error


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ModelLoadError(f"{device!r} is no device; use 'auto', 'cpu' or 'cuda'.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError("There is no CUDA device here; use device='cpu' or 'auto'.")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ModelLoadError(f"There is no device {device!r} here; there are {torch.cuda.device_count()} of its kind.")
    return chosen


def _dtype(dtype: str | torch.dtype, device: torch.device, config: Any) -> torch.dtype:
    if dtype == "auto":
        stored = getattr(config.get_text_config(decoder=True), "dtype", None) or getattr(config, "dtype", None)
        native = device.type == "cuda" or (stored is torch.bfloat16 and multiplies_bfloat16())
        return torch.bfloat16 if native else torch.float32
    return _floating(dtype)


def _floating(dtype: str | torch.dtype) -> torch.dtype:
    chosen = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(chosen, torch.dtype) or not chosen.is_floating_point:
        raise ModelLoadError(f"{dtype!r} is no floating type; use 'auto', 'float32', 'bfloat16' or 'float16'.")
    return chosen


def _require(package: str, purpose: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ModelLoadError(
            f"{purpose} need the package {package}, which is not installed; run 'pip install {package}'."
        )
