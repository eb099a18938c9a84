"""A pure function of tensors that is called again and again with the same shapes: captured, compiled, or as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

_cuda: Any = torch.cuda
TensorFunction = Callable[..., Tensor]
"""Takes tensors and returns one; reads nothing else that changes, and waits for no device."""

WARM_UPS = 2
"""Runs before a capture: libraries choose their kernels and allocate on first use, neither of which can be captured."""


def first_line(error: Exception) -> str:
    """The beginning of an error's text, as half a sentence for a status line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


class CapturedFunction:
    """Runs a function as a CUDA graph over inputs and an output of its own, and brings the result to the host.

    The output is copied into pinned memory within the graph, so that one launch does everything and one wait, for that
    copy, is all that the host does.
    """

    def __init__(self, function: TensorFunction, inputs: Sequence[Tensor], pool: Any = None) -> None:
        """Capture; the function is run a few times on copies of the inputs.

        Args:
            function: The function.
            inputs: CUDA tensors of the shapes with which it will be called.
            pool: Memory that graphs share which never run at the same time; None begins one.

        Raises:
            RuntimeError: It cannot be captured.
        """
        self._lock = Lock()
        with torch.inference_mode():
            self._inputs = tuple(tensor.clone() for tensor in inputs)
            stream = _cuda.Stream()
            stream.wait_stream(_cuda.current_stream())
            with _cuda.stream(stream):
                for _ in range(WARM_UPS):
                    output = function(*self._inputs)
            _cuda.current_stream().wait_stream(stream)
            self._host = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
            self._graph = _cuda.CUDAGraph()
            with _cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
                self._host.copy_(function(*self._inputs), non_blocking=True)
        self._done = _cuda.Event()
        self.pool = self._graph.pool()

    @torch.inference_mode()
    def __call__(self, *inputs: Tensor) -> Tensor:
        """The result on the host, the caller's own."""
        with self._lock:
            for own, given in zip(self._inputs, inputs, strict=True):
                own.copy_(given, non_blocking=True)
            self._graph.replay()
            self._done.record()
            self._done.synchronize()
            return self._host.clone()


class CompiledFunction:
    """Runs a function through ``torch.compile``, and brings the result to the host."""

    def __init__(self, function: TensorFunction, inputs: Sequence[Tensor], backend: str) -> None:
        """Compile.

        Args:
            function: The function.
            inputs: Tensors of the shapes with which it will be called.
            backend: Backend of ``torch.compile``, such as ``"inductor"``, which needs a C++ compiler on a CPU.

        Raises:
            RuntimeError: It cannot be compiled.
        """
        compiled: Any = torch.compile(function, backend=backend, fullgraph=True, dynamic=False)
        self._function: TensorFunction = compiled
        self._lock = Lock()
        try:
            self(*inputs)
        except Exception as error:
            # What torch.compile raises has no public base: too many compilations are no RuntimeError, for one.
            raise RuntimeError(f"torch.compile with {backend!r} failed: {error}") from error

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The result on the host."""
        # Tensors that were made for inference alone have no version, without which they cannot be compiled for.
        with self._lock, torch.inference_mode(False), torch.no_grad():
            return self._function(*(tensor.clone() for tensor in inputs)).cpu()
