"""Linear layers with 8-bit or 4-bit weights on a processor, by PyTorch's own operators.

A decoding step multiplies one or two rows by every matrix, which takes as long as reading the weights. Weights are
quantised while they are read from their files, so that the whole model is never held in 16 bits. Rows stay bfloat16 and
each is multiplied by itself, so that no branch's logits depend on what else is in its batch.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, nn
from transformers.core_model_loading import ConversionOps
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

METHOD = "coft-int"
"""What transformers knows this quantisation by."""

GROUP = 32
"""4-bit weights of a row that share a scale and a zero; also what the width of rows is padded to."""

OUTPUTS = 16
"""What the number of outputs is padded to: the operators read so many rows of weights at a time."""

HEAD_BITS = 8
"""Bits of the head's weights: its products are the logits."""

CHUNK = 1 << 20
"""Weights that are quantised at a time, so that their copies in 32 bits stay small."""

_operators: Any = torch.ops.aten
_LEAST = torch.finfo(torch.bfloat16).tiny


class IntLinear(nn.Module):
    """A linear layer over quantised weights.

    What is saved and digested are the scales and a digest of the codes, since the order in which the operators keep
    4-bit codes is each processor's own.
    """

    packed: Tensor
    scales: Tensor
    codes_digest: Tensor

    def __init__(self, weight: Tensor, bias: nn.Parameter | None, bits: int, repeats: bool = False) -> None:
        """Quantise weights ``(out, in)``; ``repeats`` says that the model holds them elsewhere too."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias, self.bits, self.repeats = bias, bits, repeats
        self._lacking = -self.in_features % GROUP
        codes, scales = quantised(weight, bits)
        digest = torch.frombuffer(bytearray(hashlib.sha256(codes.numpy().data).digest()), dtype=torch.uint8)
        packed = codes if bits == 8 else _operators._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
        self.register_buffer("packed", packed)
        self.register_buffer("scales", scales)
        self.register_buffer("codes_digest", digest)

    def forward(self, rows: Tensor) -> Tensor:
        """The product with the weights, ``(..., out)``."""
        flat = rows.reshape(-1, self.in_features).to(torch.bfloat16)
        flat = nn.functional.pad(flat, (0, self._lacking)) if self._lacking else flat.contiguous()
        product: Tensor
        if self.bits == 8:
            product = _operators._weight_int8pack_mm(flat, self.packed, self.scales)
        else:
            product = _operators._weight_int4pack_mm_for_cpu(flat, self.packed, GROUP, self.scales)
        product = product[:, : self.out_features].reshape(*rows.shape[:-1], self.out_features)
        return (product if self.bias is None else product + self.bias).to(rows.dtype)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        # The buffer itself cannot be non-persistent: transformers empties those of a model that it has loaded.
        super()._save_to_state_dict(destination, prefix, keep_vars)
        del destination[f"{prefix}packed"]

    @property
    def weight(self) -> Tensor:
        """The weights that the codes stand for, ``(out, in)``, for models that look at them; made anew each time."""
        products: Tensor = self(torch.eye(self.in_features, dtype=torch.bfloat16))
        return (products if self.bias is None else products - self.bias).T


def quantised(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes of weights ``(out, in)``, padded with zeros to what the operators take, and the scales.

    8 bits: int8 codes ``(O, I)`` of a scale for each output, ``(O,)``. 4 bits: uint8 codes ``(O, I)``, from 0 to 15, of
    a scale and the value of code 8 for each group, ``(I / 32, O, 2)``.
    """
    outputs, width = (size + -size % multiple for size, multiple in zip(weight.shape, (OUTPUTS, GROUP), strict=True))
    codes = torch.empty(outputs, width, dtype=torch.int8 if bits == 8 else torch.uint8)
    scales = torch.empty((outputs,) if bits == 8 else (width // GROUP, outputs, 2), dtype=torch.bfloat16)
    each = max(1, CHUNK // width // OUTPUTS) * OUTPUTS
    for begin in range(0, outputs, each):
        rows = slice(begin, min(begin + each, outputs))
        given = weight[rows].detach().float()
        given = nn.functional.pad(given, (0, width - given.shape[1], 0, rows.stop - begin - given.shape[0]))
        if bits == 8:
            codes[rows], scales[rows] = _int8(given)
        else:
            codes[rows], scales[:, rows] = _int4(given)
    return codes, scales


def _int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    scales = (weight.abs().amax(1) / 127).clamp_min(_LEAST).bfloat16()  # (O,)
    # Codes are those of the scale as it is kept, so that its rounding is not an error of its own.
    codes = (weight / scales.float()[:, None]).round_().clamp_(-127, 127)
    return codes.to(torch.int8), scales


def _int4(weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = weight.unflatten(1, (-1, GROUP))  # (O, G, 32)
    least, most = groups.aminmax(dim=2)
    scales = ((most - least) / 15).clamp_min(_LEAST).bfloat16()  # (O, G)
    zeros = (least + 8 * scales.float()).bfloat16()
    codes = ((groups - zeros.float()[..., None]) / scales.float()[..., None]).round_().add_(8).clamp_(0, 15)
    return codes.flatten(1).to(torch.uint8), torch.stack([scales, zeros], dim=-1).transpose(0, 1)


@register_quantization_config(METHOD)
class IntWeights(QuantizationConfigMixin):
    """What ``from_pretrained`` is asked for."""

    def __init__(self, bits: int) -> None:
        """The bits of every weight but the head's."""
        self.quant_method = METHOD  # type: ignore[assignment]
        self.bits = bits


@register_quantizer(METHOD)
class IntQuantizer(HfQuantizer):
    """Puts an :class:`IntLinear` in the place of each linear layer as its weights are read."""

    requires_calibration = False

    def __init__(self, quantization_config: IntWeights, **kwargs: Any) -> None:
        """Remember the bits."""
        super().__init__(quantization_config, **kwargs)
        self.misfits: set[str] = set()
        """Weights of other shapes than the model's, which loading refuses where they are left as they are."""

    def param_needs_quantization(self, model: Any, param_name: str, **kwargs: Any) -> bool:
        """Whether it is the weight of a linear layer that no other part of the model shares."""
        path, _, name = param_name.rpartition(".")
        left = {*model.all_tied_weights_keys, *model.all_tied_weights_keys.values(), *self.misfits}
        return name == "weight" and param_name not in left and type(model.get_submodule(path)) in (nn.Linear, Conv1D)

    def get_quantize_ops(self) -> ConversionOps:
        """What is done with such a weight."""
        return _Replace(self)

    def replace(self, model: Any, path: str, weight: Tensor, repeats: bool = False) -> None:
        """Put quantised weights in the place of a linear layer."""
        linear = model.get_submodule(path)
        bits: int = HEAD_BITS if linear is model.get_output_embeddings() else self.quantization_config.bits
        # GPT-2 keeps its matrices transposed.
        weight = weight.T if type(linear) is Conv1D else weight
        model.set_submodule(path, IntLinear(weight, linear.bias, bits, repeats))

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> None:
        # A head that shares the embedding's weights gets codes of its own: the embedding is read by rows, and the head
        # whole at every step.
        head = model.get_output_embeddings()
        for path, module in list(model.named_modules()):
            if module is head and type(head) is nn.Linear:
                repeats = head.weight is model.get_input_embeddings().weight
                self.replace(model, path, head.weight, repeats)

    def is_serializable(self) -> bool:
        """It is not saved."""
        return False

    @property
    def is_trainable(self) -> bool:
        """It is not trained."""
        return False


class _Replace(ConversionOps):
    def __init__(self, quantizer: IntQuantizer) -> None:
        self._quantizer = quantizer

    def convert(  # type: ignore[override]
        self, input_dict: dict[str, Any], *, model: Any, missing_keys: set[str], **_: Any
    ) -> dict[str, Tensor]:
        """Replace the layers; what is returned is put into the model as it is."""
        left = {}
        for name, read in input_dict.items():
            weight = read[0] if isinstance(read, list) else read
            if weight.shape != model.get_parameter(name).shape:
                self._quantizer.misfits.add(name)
            if self._quantizer.param_needs_quantization(model, name):
                self._quantizer.replace(model, name.rpartition(".")[0], weight)
                missing_keys.discard(name)
            else:
                left[name] = weight
        return left


def int_bytes(weight: Tensor, bits: int) -> int:
    """Bytes that weights ``(out, in)`` take where they are quantised, but for what they are padded with."""
    scales = weight.shape[0] if bits == 8 else weight.numel() // GROUP * 2
    return weight.numel() * bits // 8 + 2 * scales


def int_layers(module: nn.Module) -> list[IntLinear]:
    """The layers of a model that hold quantised weights; none where it was not quantised here."""
    return [layer for layer in module.modules() if isinstance(layer, IntLinear)]


def int_text(module: nn.Module) -> str:
    """``"weights 4-bit, head 8-bit"``, and how many matrices stay in 16 bits; empty where there are no such layers."""
    layers = int_layers(module)
    if not layers:
        return ""
    least = min(layer.bits for layer in layers)
    embeddings = {id(each.weight) for each in module.modules() if isinstance(each, nn.Embedding)}
    plain = [each for each in module.parameters() if each.ndim > 1 and id(each) not in embeddings]
    head = "" if least == HEAD_BITS else f", head {HEAD_BITS}-bit"
    return f"weights {least}-bit{head}" + (f", {len(plain)} matrices bfloat16" if plain else "")
