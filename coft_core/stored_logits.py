"""The logits of one step as an audit keeps them: every branch's, or the heads of all branches and what bounds the rest.

The bytes that hold them have a version; nothing in them is executed.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coft_core.errors import StoredLogitsError

VERSION = 1
"""First byte of the format that is written; another one is refused, never guessed at."""

DTYPES: dict[str, tuple[torch.dtype, str]] = {
    "float32": (torch.float32, "<f4"),
    "float16": (torch.float16, "<f2"),
    "bfloat16": (torch.bfloat16, "<i2"),
}
"""Types in which logits are kept, with the layout of their bytes; NumPy knows no bfloat16, so its bits stand for it."""

Mode = Literal["full", "head"]
Numbers = tuple[float, ...]

_LENGTH = struct.Struct("<I")
_LARGEST_HEADER = 1 << 16


@dataclass(frozen=True, slots=True)
class Tail:
    """What is known of the tokens outside a head; all masses are of ``exp(logit / temperature)``, logarithms natural.

    The fused logits are ``(1 - lam) * factual + lam * masked``, with several masked branches their mean. The logarithm
    of their mass is convex in lambda, so the values and slopes at a few lambdas bound it at every other.
    """

    token_ids: bytes
    log_mass: Numbers
    largest: Numbers
    lams: Numbers
    fused_log_mass: Numbers
    fused_slope: Numbers
    fused_largest: Numbers

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Tokens of the head, rising, ``(n,)``."""
        return np.frombuffer(self.token_ids, dtype="<i4").astype(np.int64)


@dataclass(frozen=True, slots=True)
class StoredLogits:
    """Logits of one step, enough to fuse and certify it again at another lambda or alpha.

    Attributes:
        branches: Names of the branches, factual first.
        vocabulary_size: V, tokens of the vocabulary.
        temperature: Temperature at which the tail was measured.
        dtype: ``"float32"``, ``"float16"`` or ``"bfloat16"``: the model's own type where it has 16 bits.
        values: Logits branch by branch, ``(B, V)``, or ``(B, n)`` of a head; little-endian.
        tail: What bounds the other tokens; None when every token is kept.
    """

    branches: tuple[str, ...]
    vocabulary_size: int
    temperature: float
    dtype: str
    values: bytes
    tail: Tail | None = None

    @property
    def mode(self) -> Mode:
        """``"full"`` when the logits of every token are kept, else ``"head"``."""
        return "full" if self.tail is None else "head"

    @property
    def tail_count(self) -> int:
        """Number of tokens whose logits are not kept."""
        return 0 if self.tail is None else self.vocabulary_size - len(self.tail.token_ids) // 4

    def tensor(self) -> Tensor:
        """The logits as the model gave them, in the type in which they are kept, ``(B, V)`` or ``(B, n)``."""
        kind, layout = DTYPES[self.dtype]
        numbers = np.frombuffer(self.values, dtype=layout).reshape(len(self.branches), -1)
        native = torch.from_numpy(numbers.astype(numbers.dtype.newbyteorder("=")))  # (B, V) or (B, n)
        return native.view(kind) if self.dtype == "bfloat16" else native

    def to_bytes(self) -> bytes:
        """The logits compressed; equal logits give equal bytes."""
        header = {
            "branches": list(self.branches),
            "vocabulary_size": self.vocabulary_size,
            "temperature": self.temperature,
            "dtype": self.dtype,
            "head": None if self.tail is None else len(self.tail.token_ids) // 4,
            "lams": 0 if self.tail is None else len(self.tail.lams),
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        width = np.dtype(DTYPES[self.dtype][1]).itemsize
        body = [_LENGTH.pack(len(text)), text, _planes(self.values, width)]
        if self.tail is not None:
            body.append(_planes(self.tail.token_ids, 4))
            body += [np.asarray(numbers, dtype="<f8").tobytes() for numbers in _columns(self.tail)]
        # Bytes of a plane are unevenly frequent but do not repeat: to look for repeats takes longer and finds none.
        codes = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
        return bytes([VERSION]) + codes.compress(b"".join(body)) + codes.flush()

    @classmethod
    def from_bytes(cls, data: bytes) -> StoredLogits:
        """Rebuild from :meth:`to_bytes`. Nothing in the data is executed.

        Raises:
            StoredLogitsError: The data is damaged, or of another version.
        """
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


def _decoded(data: bytes) -> StoredLogits:
    stream = zlib.decompressobj()
    (length,) = _LENGTH.unpack(stream.decompress(data, _LENGTH.size))
    if not 0 < length <= _LARGEST_HEADER:
        raise ValueError("the header is too long")
    header = json.loads(stream.decompress(stream.unconsumed_tail, length))
    branches, vocabulary = tuple(str(name) for name in header["branches"]), int(header["vocabulary_size"])
    head, points = header["head"], int(header["lams"])
    kept = vocabulary if head is None else int(head)
    width = np.dtype(DTYPES[header["dtype"]][1]).itemsize
    if not (branches and 0 < kept <= vocabulary and points >= 0):
        raise ValueError("the sizes in its header contradict each other")
    sizes = [len(branches) * kept * width]
    if head is not None:
        sizes += [4 * kept, 8 * len(branches), 8 * len(branches), *[8 * points] * 4]
    # One byte more than there should be is asked for, so that data that goes on is found out and never held whole.
    body = stream.decompress(stream.unconsumed_tail, sum(sizes) + 1)
    if len(body) != sum(sizes) or not stream.eof or stream.unused_data:
        raise ValueError("its length is not what its header says")
    parts = [body[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
    return StoredLogits(
        branches=branches,
        vocabulary_size=vocabulary,
        temperature=float(header["temperature"]),
        dtype=str(header["dtype"]),
        values=_joined(parts[0], width),
        tail=None if head is None else _tail(parts[1:], vocabulary),
    )


def _tail(parts: Sequence[bytes], vocabulary: int) -> Tail:
    columns = [tuple(np.frombuffer(part, dtype="<f8").tolist()) for part in parts[1:]]
    tail = Tail(_joined(parts[0], 4), *columns)
    ids = tail.ids
    if (np.diff(ids) <= 0).any() or ids[0] < 0 or ids[-1] >= vocabulary:
        raise ValueError("its tokens are not in order")
    if tail.lams[:1] != (0.0,) or tail.lams[-1] != 1.0 or any(map(math.isnan, (*tail.log_mass, *tail.fused_log_mass))):
        raise ValueError("the figures of its tail are not usable")
    return tail


def _columns(tail: Tail) -> tuple[Numbers, ...]:
    return tail.log_mass, tail.largest, tail.lams, tail.fused_log_mass, tail.fused_slope, tail.fused_largest


def _planes(data: bytes, width: int) -> bytes:
    """First bytes of all numbers, then their second ones, and so on: signs and exponents compress when together."""
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width).T.tobytes()


def _joined(planes: bytes, width: int) -> bytes:
    """Invert :func:`_planes`."""
    return np.frombuffer(planes, dtype=np.uint8).reshape(width, -1).T.tobytes()
