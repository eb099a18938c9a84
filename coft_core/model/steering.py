"""Fitted directions of attention heads: what is kept of them, and the hook that moves a model along them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coft_core.errors import InvalidInputError
from coft_core.fingerprint import same_digests
from coft_core.model.language_model import LanguageModel

LAYERS = ("model.layers", "transformer.h", "gpt_neox.layers")
"""Where decoders keep their layers: Llama, Mistral, Mixtral and Qwen2; GPT-2; GPT-NeoX."""

PROJECTIONS = ("self_attn.o_proj", "attn.c_proj", "attention.dense")
"""Where a layer keeps the projection that mixes its heads' outputs, in the same order."""


@dataclass(frozen=True, slots=True)
class HeadGeometry:
    """The attention heads of a model."""

    projections: tuple[Any, ...]
    heads: int
    width: int

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.projections)


def head_geometry(module: Any) -> HeadGeometry:
    """Find the attention heads of a transformers module."""
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
    return int(projection.weight.shape[0] if transposed else projection.in_features)


FORMAT = 1
_ARRAYS = ("layers", "heads", "vectors", "spreads", "accuracies")


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """Directions of some attention heads of one model; N heads of width W."""

    model: str
    weights: tuple[str, ...]  # a digest for each floating type in which the model may be loaded
    layers: npt.NDArray[np.int64]  # (N,)
    heads: npt.NDArray[np.int64]  # (N,), each within its layer
    vectors: npt.NDArray[np.float32]  # (N, W), unit length, from the unwanted to the wanted label
    spreads: npt.NDArray[np.float32]  # (N,), standard deviation of the heads' outputs along them
    accuracies: npt.NDArray[np.float32]  # (N,), share of held-out pairs that each tells apart
    pairs: int

    def best(self, count: int) -> Directions:
        """The heads with the highest accuracy; ties go to the earlier one."""
        order = np.argsort(-self.accuracies, kind="stable")[:count]
        return replace(self, **{name: getattr(self, name)[np.sort(order)] for name in _ARRAYS})

    def save(self, path: Path) -> None:
        """Write to a file in NumPy's compressed form."""
        header = json.dumps({"format": FORMAT, "model": self.model, "weights": self.weights, "pairs": self.pairs})
        with path.open("wb") as file:
            np.savez_compressed(file, header=np.array(header), **{name: getattr(self, name) for name in _ARRAYS})

    @classmethod
    def load(cls, path: Path) -> Directions:
        """Read a file written by :meth:`save`."""
        try:
            with np.load(path, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                arrays = {name: file[name] for name in _ARRAYS}
            if header["format"] != FORMAT:
                raise ValueError(f"format {header['format']}")
            return cls(model=header["model"], weights=tuple(header["weights"]), pairs=header["pairs"], **arrays)
        except FileNotFoundError:
            raise InvalidInputError(f"There is no file of directions at {path}; {_made_by('MODEL')}.") from None
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise InvalidInputError(f"{path} is no file of directions ({error}); {_made_by('MODEL')}.") from error

    def require(self, model: LanguageModel) -> None:
        """Refuse a model that the directions were not fitted on."""
        if not any(same_digests(model.weights_digest, fitted) for fitted in self.weights):
            raise InvalidInputError(
                f"These directions were fitted on {self.model!r} with other weights than {model.name!r} has; "
                f"{_made_by(model.name)}."
            )


@dataclass(frozen=True, slots=True, eq=False)
class SteeringHook:
    """Moves the outputs of some heads along their directions, at every position, while it is attached to a module."""

    directions: Directions
    strength: float

    def __call__(self, module: Any) -> AttachedHooks:
        """Attach to a module; the returned object's ``remove`` takes everything off."""
        geometry = head_geometry(module)
        attached = AttachedHooks()
        for layer in sorted(set(self.directions.layers.tolist())):
            shift = self._shift(layer, geometry.heads, geometry.width)
            projection = geometry.projections[layer]
            attached.callback(projection.register_forward_pre_hook(_adding(shift)).remove)
        return attached

    def _shift(self, layer: int, heads: int, width: int) -> Tensor:
        """What is added to the input of a layer's projection, ``(heads * width,)``."""
        shift = torch.zeros(heads, width)
        for place in np.flatnonzero(self.directions.layers == layer):
            vector = torch.from_numpy(self.directions.vectors[place])
            shift[int(self.directions.heads[place])] = self.strength * float(self.directions.spreads[place]) * vector
        return shift.flatten()


class AttachedHooks(ExitStack):
    """Hooks that were attached together."""

    def remove(self) -> None:
        """Take them off."""
        self.close()


def _made_by(model: str) -> str:
    return f"make some with `python -m bench.steering_directions --model {model} --out FILE` and choose that file"


def _adding(shift: Tensor) -> Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]:
    def add(projection: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (inputs[0] + shift.to(inputs[0]), *inputs[1:])

    return add
