"""llama.cpp as engine: a GGUF file at its own precision, through the low-level functions of llama-cpp-python."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.util
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

from coft_core.errors import ModelLoadError
from coft_core.model.slots import FIRST_CAPACITY, RowTokens, capacity_for

Place = tuple[int, int, int, bool]
"""A token to read: its sequence, position and id, and whether the logits after it are wanted."""
SEQUENCES = 256
"""Sequences of one context at most, by llama.cpp's own limit."""
FEW = 3
"""Rows that are read one after the other where that is faster."""
TRIALS = 3
"""How often both ways are timed."""
BATCH = 512
"""Tokens that are handed over at a time, and read in one pass."""
PIECE = 1 << 25
"""Logits that are held at a time where a text is read again."""
WHOLE = ("all F32", "F16", "BF16")
"""How llama.cpp calls weights that are not quantised."""
F32, F16 = 0, 1
"""Types of keys and values, by ggml's numbers."""
WHOLE_DIGEST_BYTES = 512 << 20
"""Bytes above which only samples of a file count in its digest."""
SAMPLES, SAMPLE_BYTES = 4096, 1 << 14


def llama_cpp(name: str) -> Any:
    """The package's low-level functions; a sentence says how to install it."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise ModelLoadError(
            f"{name!r} is a GGUF file, which llama.cpp runs, and it is not installed here; run "
            "'pip install -r requirements-llama.txt' (it is built in some minutes)."
        )
    return importlib.import_module("llama_cpp.llama_cpp")


class LlamaEngine:
    """One GGUF file; each batch of rows has a context of its own."""

    title = "llama.cpp"
    computes_here = True

    def __init__(self, path: Path, name: str, on_gpu: bool) -> None:
        """Load the weights, on the GPU where the package was built for one."""
        self.api = api = llama_cpp(name)
        _quiet(api)
        api.llama_backend_init()
        parameters = api.llama_model_default_params()
        parameters.n_gpu_layers = -1 if on_gpu and api.llama_supports_gpu_offload() else 0
        # Rearranged 4-bit weights are fast for one row only: the second one cost 0.8 to 0.9 of the first.
        parameters.use_extra_bufts = False
        self.model = api.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            raise ModelLoadError(
                f"llama.cpp cannot read {name!r}: the file is damaged, or of a kind that this version does not know; "
                "fetch it again, or install a newer llama-cpp-python."
            )
        finalize(self, api.llama_model_free, self.model)
        self.vocabulary = api.llama_model_get_vocab(self.model)
        self.vocabulary_size = int(api.llama_vocab_n_tokens(self.vocabulary))
        self.context_length = int(api.llama_model_n_ctx_train(self.model))
        self.weight_bytes = int(api.llama_model_size(self.model))
        self.parameter_count = int(api.llama_model_n_params(self.model))
        precision = self._described().rpartition("B ")[2]
        self.quantization = "none" if precision in WHOLE else precision
        # Keys and values in 32 bits where the weights are: their rounding would be the largest error.
        self.cell_type = F32 if precision == WHOLE[0] else F16
        layers, heads = api.llama_model_n_layer(self.model), api.llama_model_n_head(self.model)
        width = api.llama_model_n_embd(self.model) // max(heads, 1) * api.llama_model_n_head_kv(self.model)
        self.token_bytes = int(2 * layers * width * (4 if self.cell_type == F32 else 2))
        self.threads = torch.get_num_threads()

    def _described(self) -> str:
        """Kind, size and precision, such as ``"llama 8B Q4_K - Medium"``."""
        text = ctypes.create_string_buffer(256)
        self.api.llama_model_desc(self.model, text, len(text))
        return str(text.value, errors="replace")

    @cached_property
    def apart(self) -> bool:
        """Whether two rows take longer together than one after the other, as some kernels of llama.cpp have it."""
        pair, single = (Context(self, rows * FIRST_CAPACITY, rows) for rows in (2, 1))
        together, alone = math.inf, math.inf
        for position in range(TRIALS):
            began = time.perf_counter()
            pair.read([(row, position, 0, True) for row in (0, 1)])
            read = time.perf_counter()
            single.read([(0, position, 0, True)])
            # The first ones also warm up.
            together, alone = min(together, read - began), min(alone, time.perf_counter() - read)
        return together > 2 * alone

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a text."""
        is_end = self.api.llama_vocab_is_eog
        return frozenset(i for i in range(self.vocabulary_size) if is_end(self.vocabulary, i))

    def encode(self, text: str) -> list[int]:
        """Tokens of a text by llama.cpp's own tokenizer, without special ones around it."""
        data = text.encode()
        tokens = (ctypes.c_int32 * (len(data) + 8))()
        count = self.api.llama_tokenize(self.vocabulary, data, len(data), tokens, len(tokens), False, False)
        return list(tokens[: max(count, 0)])

    def open_rows(self, tokens: RowTokens) -> LlamaRows:
        """Rows with these tokens; nothing is read yet."""
        return LlamaRows(self, tokens)

    def read(self, ids: Tensor, begin: int = 0) -> Iterator[Tensor]:
        """Logits after each token of ``(R, L)`` from a column on, some columns at a time, ``(R, w, V)`` each."""
        if len(ids) > SEQUENCES:
            parts = [self.read(some, begin) for some in ids.split(SEQUENCES)]
            yield from (torch.cat(pieces) for pieces in zip(*parts, strict=True))
            return
        rows, length = ids.shape
        context = Context(self, rows * length, rows)
        shared = int((ids == ids[0]).all(0).long().cumprod(0).sum()) if rows > 1 else 0
        done = context.read_shared(ids[0].tolist(), min(shared, begin), rows)
        width = max(1, PIECE // (rows * self.vocabulary_size))
        starts = [*([done] if done < begin else []), *range(begin, length, width)]
        for start, stop in pairwise([*starts, length]):
            wanted, columns = start >= begin, range(start, stop)
            logits = context.read([(row, at, int(ids[row, at]), wanted) for row in range(rows) for at in columns])
            if wanted:
                yield logits.view(rows, len(columns), -1)


class Context:
    """Keys and values of some sequences, and the buffers to compute with."""

    def __init__(self, engine: LlamaEngine, cells: int, sequences: int) -> None:
        """Take memory for so many tokens in all."""
        self.engine, self.api = engine, engine.api
        self.cells, self.sequences = cells, sequences
        parameters = self.api.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max, parameters.kv_unified = cells, sequences, True
        parameters.n_batch = parameters.n_ubatch = min(BATCH, max(cells, sequences))
        parameters.n_threads = parameters.n_threads_batch = engine.threads
        parameters.type_k = parameters.type_v = engine.cell_type
        if engine.cell_type == F32:
            # Flash attention rounds to 16 bits on the way: it moved log-probabilities by 0.006, without it by 0.00002.
            parameters.flash_attn_type = self.api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.no_perf, parameters.swa_full = True, True
        self._batch_size = parameters.n_batch
        self._context = self.api.llama_init_from_model(engine.model, parameters)
        if not self._context:
            raise MemoryError(f"llama.cpp has no memory for {cells:,} tokens.")
        finalize(self, self.api.llama_free, self._context)
        self._memory = self.api.llama_get_memory(self._context)

    def read(self, tokens: Sequence[Place]) -> Tensor:
        """Read tokens; the logits that are wanted, ``(n, V)``."""
        found = []
        for start in range(0, len(tokens), self._batch_size):
            piece = tokens[start : start + self._batch_size]
            batch = self.api.llama_batch_init(len(piece), 0, 1)
            try:
                batch.n_tokens = len(piece)
                for place, (sequence, position, token, wanted) in enumerate(piece):
                    batch.token[place], batch.pos[place], batch.logits[place] = token, position, wanted
                    batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
                if status := self.api.llama_decode(self._context, batch):
                    raise RuntimeError(f"llama.cpp could not read {len(piece)} tokens (status {status})")
            finally:
                self.api.llama_batch_free(batch)
            found += [self._logits(place) for place, (*_, wanted) in enumerate(piece) if wanted]
        # llama.cpp writes the next logits over these.
        return torch.from_numpy(np.stack(found)) if found else torch.empty(0, self.engine.vocabulary_size)

    def _logits(self, place: int) -> np.ndarray[Any, Any]:
        pointer = self.api.llama_get_logits_ith(self._context, place)
        return np.ctypeslib.as_array(pointer, shape=(self.engine.vocabulary_size,)).copy()

    def forget(self, sequence: int, position: int) -> bool:
        """Forget a sequence from a position on; False where the model's layers cannot be cut."""
        return bool(self.api.llama_memory_seq_rm(self._memory, sequence, position, -1))

    def read_shared(self, row: Sequence[int], length: int, rows: int) -> int:
        """Have so many sequences begin with the first tokens of a row, read and held once; gives their number back."""
        if length < 1:
            return 0
        self.read([(0, position, row[position], False) for position in range(length)])
        for sequence in range(1, rows):
            self.api.llama_memory_seq_cp(self._memory, 0, sequence, -1, -1)
        return length

    def copy_into(self, other: Context, sequence: int, place: int) -> None:
        """Copy a sequence's keys and values to a place in another context."""
        size = self.api.llama_state_seq_get_size(self._context, sequence)
        data = (ctypes.c_uint8 * size)()
        self.api.llama_state_seq_get_data(self._context, data, size, sequence)
        if not self.api.llama_state_seq_set_data(other._context, data, size, place):
            raise MemoryError("llama.cpp has no memory for a copy of these tokens.")


class LlamaRows:
    """Rows as sequences of contexts, which are replaced by larger ones when they are full."""

    may_join = False

    def __init__(self, engine: LlamaEngine, tokens: RowTokens) -> None:
        self._engine, self._tokens = engine, tokens
        # Row r is sequence r % SEQUENCES of context r // SEQUENCES.
        self._contexts: list[Context] = []
        # Tokens of each row that have been read, and those of them that are held once for all.
        self._held, self.shared_length = [0] * tokens.rows, 0

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(context.cells for context in self._contexts) * self._engine.token_bytes

    def size_after(self, count: int) -> int:
        """Bytes held when so many more tokens have been read."""
        return self._tokens.rows * self._capacity(count) * self._engine.token_bytes

    def logits(self) -> Tensor:
        """Read what is pending, ``(R, V)``."""
        rows = self._rows()
        self._reserve()
        if not any(self._held):
            self._read_shared(rows)
        if all(held == len(row) for held, row in zip(self._held, rows, strict=True)):
            self.cut()
        try:
            logits = [part for place, context in enumerate(self._contexts) for part in self._read(place, context, rows)]
        except RuntimeError:
            self._contexts, self._held = [], [0] * len(rows)
            raise
        self._held = [len(row) for row in rows]
        return torch.cat(logits)

    def _read(self, place: int, context: Context, rows: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        pending = self._pending(place, rows)
        few = 1 < context.sequences == len(pending) <= FEW
        yield from map(context.read, [[one] for one in pending] if few and self._engine.apart else [pending])

    def cut(self) -> None:
        """Forget the newest token and those that are no longer there."""
        for row, (held, written) in enumerate(zip(self._held, self._rows(), strict=True)):
            if (left := len(written) - 1) < held:
                context, sequence = self._contexts[row // SEQUENCES], row % SEQUENCES
                # A recurrent layer cannot be cut: its text is read again.
                self._held[row] = left if context.forget(sequence, left) else 0
                if not self._held[row]:
                    context.forget(sequence, 0)

    def copied(self, tokens: RowTokens) -> LlamaRows:
        """A second memory for earlier tokens of these rows."""
        copy = LlamaRows(self._engine, tokens)
        copy._take(self._contexts, range(tokens.rows), self._held)
        copy.cut()
        return copy

    def keep(self, rows: Sequence[int], tokens: RowTokens) -> None:
        """Go on with some of the rows, whose tokens are given."""
        before, held, self._tokens = self._contexts, [self._held[row] for row in rows], tokens
        self._take(before, rows, held)

    def _rows(self) -> list[list[int]]:
        written = self._tokens.after(0).tolist()
        return [[*prompt, *tail] for prompt, tail in zip(self._tokens.prompts, written, strict=True)]

    def _pending(self, place: int, rows: Sequence[Sequence[int]]) -> list[Place]:
        """What a context has not read yet of its rows."""
        return [
            (row % SEQUENCES, position, rows[row][position], position == len(rows[row]) - 1)
            for row in range(place * SEQUENCES, min((place + 1) * SEQUENCES, len(rows)))
            for position in range(self._held[row], len(rows[row]))
        ]

    def _capacity(self, count: int = 0) -> int:
        longest = self._tokens.longest + self._tokens.generated + count
        return capacity_for(longest, self._engine.context_length)

    def _reserve(self) -> None:
        """Have room for the rows as they are now."""
        cells = self._tokens.rows * self._capacity()
        if not self._contexts or cells > sum(context.cells for context in self._contexts):
            self._take(self._contexts, range(self._tokens.rows), self._held)

    def _take(self, sources: Sequence[Context], rows: Iterable[int], held: Sequence[int]) -> None:
        """Begin with what other contexts hold of these rows."""
        count, capacity = self._tokens.rows, self._capacity()
        sizes = [min(SEQUENCES, count - start) for start in range(0, count, SEQUENCES)]
        self._contexts = [Context(self._engine, size * capacity, size) for size in sizes]
        self._held = list(held)
        for place, row in enumerate(rows):
            if held[place]:
                target = self._contexts[place // SEQUENCES]
                sources[row // SEQUENCES].copy_into(target, row % SEQUENCES, place % SEQUENCES)

    def _read_shared(self, rows: Sequence[Sequence[int]]) -> None:
        """Read what all rows begin with once in each context."""
        shared = self._tokens.shared() if len(rows) > 1 else 0
        for context in self._contexts:
            context.read_shared(rows[0], shared, context.sequences)
        self.shared_length, self._held = shared, [shared] * len(rows)


def file_digest(path: Path) -> str:
    """Digest of a file and of those that it was split into; of large ones, of evenly spaced samples."""
    first, split, _ = path.name.partition("-00001-of-")
    files = sorted(path.parent.glob(f"{first}-*-of-*.gguf")) if split else [path]
    sampled = sum(file.stat().st_size for file in files) > WHOLE_DIGEST_BYTES
    digest = hashlib.sha256()
    for each in files:
        size = each.stat().st_size
        digest.update(str(size).encode())
        with each.open("rb") as file:
            for sample in range(SAMPLES if sampled else 1):
                file.seek(max(size - SAMPLE_BYTES, 0) * sample // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES if sampled else size))
    return f"{'sampled' if sampled else 'sha256'}:{digest.hexdigest()}"


def gguf_file(name: str) -> Path | None:
    """The GGUF file that a name is of: itself, the only one in a folder, or the first part of one that was split."""
    try:
        path = Path(name).expanduser()
        if path.is_dir() and not (path / "config.json").exists():
            parts = [file for file in path.glob("*.gguf") if "-of-" not in file.name or "-00001-of-" in file.name]
            path = parts[0] if len(parts) == 1 else path
        if path.suffix.lower() != ".gguf" or not path.is_file():
            return None
        with path.open("rb") as file:
            return path if file.read(4) == b"GGUF" else None
    except (OSError, RuntimeError, ValueError):
        # A folder that may not be entered, a home of nobody, a name with a NUL or too long for a path.
        return None


@cache
def _quiet(api: Any) -> object:
    """Keep llama.cpp's log off the terminal; what is returned must live as long as the library."""
    callback = api.llama_log_callback(lambda level, text, data: None)
    api.llama_log_set(callback, ctypes.c_void_p(0))
    return callback
