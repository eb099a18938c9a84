"""The logits of one step as an audit keeps them, every branch's.

The bytes that hold them have a version; nothing in them is executed.
"""

from __future__ import annotations

import json
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coft_core.errors import StoredLogitsError

VERSION = 1
"""First byte of the format that is written; another one is refused, never guessed at."""

_PACKED = 2
"""First byte of logits that an earlier version stored as differences from a product with the model's last matrix."""

DTYPES: dict[str, tuple[torch.dtype, str]] = {
    "float32": (torch.float32, "<f4"),
    "float16": (torch.float16, "<f2"),
    "bfloat16": (torch.bfloat16, "<i2"),
}
"""Types in which logits are kept, with the layout of their bytes; NumPy knows no bfloat16, so its bits stand for it."""

_LENGTH = struct.Struct("<I")
_LARGEST_HEADER = 1 << 16


@dataclass(frozen=True, slots=True)
class StoredLogits:
    """Logits of one step, enough to fuse and certify it again at another lambda or alpha.

    Attributes:
        temperature: Temperature of the policy that decoded the step.
        dtype: ``"float32"``, ``"float16"`` or ``"bfloat16"``: the model's own type where it has 16 bits.
        values: Logits branch by branch, factual first, ``(B, V)``, little-endian.
    """

    branches: tuple[str, ...]
    vocabulary_size: int
    temperature: float
    dtype: str
    values: bytes

    def tensor(self) -> Tensor:
        """The logits as the model gave them, in the type in which they are kept, ``(B, V)``."""
        kind, layout = DTYPES[self.dtype]
        numbers = np.frombuffer(self.values, dtype=layout).reshape(len(self.branches), -1)
        native = torch.from_numpy(numbers.astype(numbers.dtype.newbyteorder("=")))  # (B, V)
        return native.view(kind) if self.dtype == "bfloat16" else native

    def to_bytes(self) -> bytes:
        """The logits compressed; equal logits give equal bytes."""
        header = {
            "branches": list(self.branches),
            "vocabulary_size": self.vocabulary_size,
            "temperature": self.temperature,
            "dtype": self.dtype,
            # Earlier versions kept a part of large vocabularies, and said here how much.
            "head": None,
            "lams": 0,
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        width = np.dtype(DTYPES[self.dtype][1]).itemsize
        body = [_LENGTH.pack(len(text)), text, _planes(self.values, width)]
        # Bytes of a plane are unevenly frequent but do not repeat: to look for repeats takes longer and finds none.
        codes = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
        return bytes([VERSION]) + codes.compress(b"".join(body)) + codes.flush()

    @classmethod
    def from_bytes(cls, data: bytes) -> StoredLogits:
        """Rebuild from :meth:`to_bytes`."""
        if not data or data[0] != VERSION:
            format_named = f"format {data[0]}" if data else "no format"
            raise StoredLogitsError(
                f"The logits of this step are stored in {format_named}; this program reads format {VERSION}."
            )
        try:
            return _decoded(data[1:])
        except (ValueError, KeyError, TypeError, zlib.error, struct.error, UnicodeDecodeError) as error:
            raise StoredLogitsError(
                f"The stored logits of this step are damaged ({error}); the step itself is intact, take it from a "
                "backup or decode the chain again."
            ) from error


def holds_all(data: bytes) -> bool:
    """Whether the bytes of a step hold all its logits by themselves, which those of earlier versions may not."""
    if not data or data[0] != VERSION:
        return data[:1] != bytes([_PACKED])
    with suppress(ValueError, KeyError, TypeError, zlib.error, struct.error, UnicodeDecodeError):
        return _header(zlib.decompressobj(), data[1:])["head"] is None
    # What is damaged is told when it is read.
    return True


def _header(stream: Any, data: bytes) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(stream.decompress(data, _LENGTH.size))
    if not 0 < length <= _LARGEST_HEADER:
        raise ValueError("the header is too long")
    header: dict[str, Any] = json.loads(stream.decompress(stream.unconsumed_tail, length))
    return header


def _decoded(data: bytes) -> StoredLogits:
    stream = zlib.decompressobj()
    header = _header(stream, data)
    branches, vocabulary = tuple(str(name) for name in header["branches"]), int(header["vocabulary_size"])
    if header["head"] is not None or not branches or vocabulary < 1:
        raise ValueError("its header does not speak of all logits")
    width = np.dtype(DTYPES[header["dtype"]][1]).itemsize
    size = len(branches) * vocabulary * width
    # One byte more than there should be is asked for, so that data that goes on is found out and never held whole.
    body = stream.decompress(stream.unconsumed_tail, size + 1)
    if len(body) != size or not stream.eof or stream.unused_data:
        raise ValueError("its length is not what its header says")
    temperature = float(header["temperature"])
    return StoredLogits(branches, vocabulary, temperature, str(header["dtype"]), _joined(body, width))


def _planes(data: bytes, width: int) -> bytes:
    """First bytes of all numbers, then their second ones, and so on: signs and exponents compress when together."""
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width).T.tobytes()


def _joined(planes: bytes, width: int) -> bytes:
    """Invert :func:`_planes`."""
    return np.frombuffer(planes, dtype=np.uint8).reshape(width, -1).T.tobytes()
