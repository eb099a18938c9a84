"""Where the attention heads of a model are: the projections that mix their outputs, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coft_core.errors import InvalidInputError

LAYERS = ("model.layers", "transformer.h", "gpt_neox.layers")
"""Where decoders keep their layers: Llama, Mistral, Mixtral and Qwen2; GPT-2; GPT-NeoX."""

PROJECTIONS = ("self_attn.o_proj", "attn.c_proj", "attention.dense")
"""Where a layer keeps the projection that mixes its heads' outputs, in the same order."""


@dataclass(frozen=True, slots=True)
class HeadGeometry:
    """The attention heads of a model.

    Attributes:
        projections: The projection that reads the heads' outputs, one a layer; its input is ``(..., heads * width)``.
        heads: Heads a layer.
        width: Width of a head's output.
    """

    projections: tuple[Any, ...]
    heads: int
    width: int

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.projections)


def head_geometry(module: Any) -> HeadGeometry:
    """Find the attention heads of a transformers module.

    Args:
        module: A causal language model of the Llama, Mistral, Mixtral, Qwen2, GPT-2 or GPT-NeoX kind.

    Raises:
        InvalidInputError: It is of another kind.
    """
    for layers_path, projection_path in zip(LAYERS, PROJECTIONS, strict=True):
        layers = _at(module, layers_path)
        if layers is None or len(layers) == 0:
            continue
        projections = tuple(_at(layer, projection_path) for layer in layers)
        if all(projection is not None for projection in projections):
            heads = int(module.config.get_text_config(decoder=True).num_attention_heads)
            return HeadGeometry(projections, heads, _inputs(projections[0]) // heads)
    raise InvalidInputError(
        f"Activation steering does not know where a {type(module).__name__} keeps its attention heads; use a model of "
        "the Llama, Mistral, Mixtral, Qwen2, GPT-2 or GPT-NeoX kind."
    )


def _at(parent: Any, path: str) -> Any:
    for name in path.split("."):
        parent = getattr(parent, name, None)
        if parent is None:
            return None
    return parent


def _inputs(projection: Any) -> int:
    # GPT-2 keeps its projections transposed, as (inputs, outputs).
    transposed = type(projection).__name__ == "Conv1D"
    return int(projection.weight.shape[0 if transposed else 1])
