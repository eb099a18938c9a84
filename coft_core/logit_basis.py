"""Logits without loss in a quarter of their bytes: their hidden states, and by how little what these give is wrong.

Logits are a matrix of the model, ``(V, d)``, times a hidden state, ``(d,)``, up to the rounding of the forward. Half of
a float32's bits look random and do not compress; but the hidden state that explains all V logits best predicts each of
them to a few units in its last place, and these differences are short. Whoever reads needs the matrix, not the model.

The prediction is the same on every machine: matrix and state are rounded to whole numbers so short that every partial
sum is exact in float64, in whatever order a library adds them. Products are PyTorch's and not NumPy's, whose threads
would compete for the processor with those of the model's own forwards, step by step.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from coft_core.errors import StoredLogitsError
from coft_core.model.language_model import LanguageModel
from coft_core.stored_logits import StoredLogits

FORMAT = 2
"""First byte of the bytes of :meth:`LogitBasis.packed`; those of :class:`StoredLogits` begin with another one."""

LARGEST = 1 << 22
"""Most numbers of a matrix: it is kept once a store, and held in float64 while it is used (32 MB)."""

WIDEST = 1024
"""Largest d: 1,024 products of 27 and 15 bits sum to less than 53 bits."""

WEIGHT_BITS, STATE_BITS, LOW_BITS = 27, 29, 14
SAMPLED = 4
"""Logits, as a multiple of d, from which a state is estimated: all of them would take longer and say little more."""

_LENGTH = struct.Struct("<I")
_LARGEST_HEADER = 1 << 16
_KEPT_AS = "logit basis"


@dataclass(frozen=True, eq=False)
class LogitBasis:
    """The matrix that a model's last layer multiplies a hidden state with.

    Attributes:
        rows: A row a token, ``(V, d)``, float16 or float32, little-endian.
    """

    rows: npt.NDArray[Any]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the matrix, by which what was packed with it names it."""
        digest = hashlib.sha256(f"{self.rows.shape}|{self.rows.dtype.str}|".encode())
        digest.update(self.rows.tobytes())
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """The matrix with its shape and type, not compressed."""
        header = json.dumps({"shape": list(self.rows.shape), "dtype": self.rows.dtype.str}).encode()
        return _LENGTH.pack(len(header)) + header + self.rows.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> LogitBasis:
        """Rebuild from :meth:`to_bytes`."""
        (length,) = _LENGTH.unpack_from(data)
        header = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        numbers = np.frombuffer(data, dtype=header["dtype"], offset=_LENGTH.size + length)
        return cls(numbers.reshape(header["shape"]))

    def packed(self, stored: StoredLogits) -> bytes | None:
        """Logits of a step as bytes for :func:`unpacked`; None where they would not be fewer than plain ones.

        That is where they have 16 bits, are infinite, or are no product with this matrix.
        """
        vocabulary, width = self.rows.shape
        if stored.dtype != "float32" or stored.vocabulary_size != vocabulary:
            return None
        values = np.frombuffer(stored.values, dtype="<f4").reshape(-1, vocabulary)  # (B, V)
        if not np.isfinite(values).all():
            return None
        chosen, solver = self._estimator
        states = (torch.from_numpy(values[:, chosen].astype(np.float64)) @ solver).numpy()  # (B, d)
        exponents = np.frexp(np.abs(states).max(axis=1))[1]  # (B,)
        whole = np.rint(np.ldexp(states, (STATE_BITS - exponents)[:, None])).astype("<i4")  # (B, d)
        off = _in_order(values) - _in_order(self._predicted(whole, exponents))  # (B, V)
        if np.abs(off).max() >= 1 << 31:
            return None
        header = {
            "branches": list(stored.branches),
            "vocabulary_size": vocabulary,
            "temperature": stored.temperature,
            "basis": self.digest,
            "width": width,
            "exponents": exponents.tolist(),
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        # Small differences of either sign have their upper bytes zero.
        folded = np.where(off >= 0, 2 * off, -2 * off - 1).astype("<u4")
        body = b"".join((_LENGTH.pack(len(text)), text, _planes(whole), _planes(folded)))
        codes = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
        data = bytes([FORMAT]) + codes.compress(body) + codes.flush()
        return data if len(data) < len(stored.values) // 2 else None

    @cached_property
    def _whole(self) -> tuple[torch.Tensor, int]:
        """The matrix in float64, whole numbers of at most ``WEIGHT_BITS`` bits, and the exponent of their unit."""
        rows = self.rows.astype(np.float64)
        exponent = int(np.frexp(np.abs(rows).max())[1])
        return torch.from_numpy(np.rint(np.ldexp(rows, WEIGHT_BITS - exponent))), exponent

    @cached_property
    def _estimator(self) -> tuple[npt.NDArray[np.intp], torch.Tensor]:
        """Tokens whose logits a state is estimated from, and what they are multiplied with, float64 ``(n, d)``."""
        vocabulary, width = self.rows.shape
        chosen = np.unique(np.linspace(0, vocabulary - 1, min(SAMPLED * width, vocabulary)).astype(np.intp))
        return chosen, torch.linalg.pinv(torch.from_numpy(self.rows[chosen].astype(np.float64))).T.contiguous()

    def _predicted(self, whole: npt.NDArray[np.int32], exponents: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """What states in whole numbers give, ``(B, V)``; every bit of it is the same on every machine."""
        weights, exponent = self._whole
        high, low = whole >> LOW_BITS, whole & ((1 << LOW_BITS) - 1)
        parts = torch.from_numpy(np.concatenate([high, low]).astype(np.float64))  # (2 B, d)
        products = (weights @ parts.T).numpy()  # (V, 2 B), each an exact whole number
        sums = products[:, : len(whole)] * float(1 << LOW_BITS) + products[:, len(whole) :]
        scales = exponents + (exponent - WEIGHT_BITS - STATE_BITS)
        return np.ascontiguousarray(np.ldexp(sums, scales[None, :]).T).astype(np.float32)

    def unpacked(self, parts: Sequence[bytes]) -> list[StoredLogits]:
        """The logits that were :meth:`packed` with this matrix, bit by bit."""
        try:
            read = [_read(part) for part in parts]
            if any(header["basis"] != self.digest for header, _, _ in read):
                raise ValueError("they were packed with another matrix")
            whole = np.concatenate([states for _, states, _ in read])
            exponents = np.concatenate([np.array(header["exponents"], dtype=np.int32) for header, _, _ in read])
            predicted = _in_order(self._predicted(whole, exponents))  # (sum of B, V)
            found, row = [], 0
            for header, states, folded in read:
                off = (folded >> 1).astype(np.int64) ^ -(folded & 1).astype(np.int64)
                values = _from_order(predicted[row : row + len(states)] + off)
                row += len(states)
                branches = tuple(str(name) for name in header["branches"])
                temperature = float(header["temperature"])
                found.append(
                    StoredLogits(branches, int(header["vocabulary_size"]), temperature, "float32", values.tobytes())
                )
            return found
        except (ValueError, KeyError, TypeError, zlib.error, struct.error, UnicodeDecodeError) as error:
            raise StoredLogitsError(
                f"The stored logits of a step are damaged ({error}); the step itself is intact, take it from a "
                "backup or decode the chain again."
            ) from error


def is_packed(data: bytes) -> bool:
    """Whether bytes need a :class:`LogitBasis` to be read."""
    return data[:1] == bytes([FORMAT])


def basis_named(data: bytes) -> str:
    """Digest of the matrix that bytes were packed with."""
    try:
        return str(_header(zlib.decompressobj(), data)[0]["basis"])
    except (ValueError, KeyError, TypeError, zlib.error, struct.error, UnicodeDecodeError) as error:
        raise StoredLogitsError(
            f"The stored logits of a step are damaged ({error}); take them from a backup or decode the chain again."
        ) from error


def basis_of(model: LanguageModel) -> LogitBasis | None:
    """The matrix of a model's last layer; None where its logits are no plain product, or it is too large to be kept."""
    if model.finding(_KEPT_AS) is None:
        model.keep_finding(_KEPT_AS, (_basis(model),))
    basis: LogitBasis | None = model.finding(_KEPT_AS)[0]
    return basis


def _basis(model: LanguageModel) -> LogitBasis | None:
    layer = getattr(model.module, "get_output_embeddings", lambda: None)()
    if not isinstance(layer, torch.nn.Linear) or layer.bias is not None or layer.weight.is_meta:
        return None
    weight = layer.weight
    if type(weight) is not torch.nn.Parameter:
        # Quantised and distributed weights are other things that look like it.
        return None
    if len(weight) != model.vocabulary_size or weight.numel() > LARGEST or weight.shape[1] > WIDEST:
        return None
    if weight.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return None
    rows = weight.detach().float().cpu()
    half = rows.half()
    kept = half.numpy().astype("<f2") if bool((half.float() == rows).all()) else rows.numpy().astype("<f4")
    return LogitBasis(kept) if np.isfinite(kept).all() and kept.any() else None


def _header(stream: Any, data: bytes) -> tuple[dict[str, Any], bytes]:
    """What the bytes say of themselves, and what is still compressed of them."""
    (length,) = _LENGTH.unpack(stream.decompress(data[1:], _LENGTH.size))
    if not 0 < length <= _LARGEST_HEADER:
        raise ValueError("the header is too long")
    return json.loads(stream.decompress(stream.unconsumed_tail, length)), stream.unconsumed_tail


def _read(data: bytes) -> tuple[dict[str, Any], npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
    """The header, the states ``(B, d)`` and the folded differences ``(B, V)``."""
    stream = zlib.decompressobj()
    header, rest = _header(stream, data)
    rows, width, vocabulary = len(header["branches"]), int(header["width"]), int(header["vocabulary_size"])
    if not (rows and 0 < width <= WIDEST and 0 < vocabulary * width <= LARGEST):
        raise ValueError("the sizes in its header contradict each other")
    sizes = 4 * rows * width, 4 * rows * vocabulary
    body = stream.decompress(rest, sum(sizes) + 1)
    if len(body) != sum(sizes) or not stream.eof or stream.unused_data:
        raise ValueError("its length is not what its header says")
    states, folded = _joined(body[: sizes[0]], "<i4"), _joined(body[sizes[0] :], "<u4")
    return header, states.reshape(rows, width), folded.reshape(rows, vocabulary)


def _in_order(values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Each float as its place among all floats: neighbours differ by one, and both zeros have places of their own."""
    bits = np.ascontiguousarray(values).view(np.int32).astype(np.int64)
    return np.where(bits >= 0, bits, ~(bits & 0x7FFFFFFF))


def _from_order(places: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Invert :func:`_in_order`."""
    bits = np.where(places >= 0, places, ~places | 0x80000000)
    return bits.astype("<u4").view("<f4")


def _planes(numbers: npt.NDArray[Any]) -> bytes:
    """First bytes of all numbers, then their second ones, and so on."""
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, numbers.dtype.itemsize).T.tobytes()


def _joined(planes: bytes, dtype: str) -> npt.NDArray[Any]:
    """Invert :func:`_planes`."""
    return np.ascontiguousarray(np.frombuffer(planes, dtype=np.uint8).reshape(4, -1).T).view(dtype).reshape(-1)
