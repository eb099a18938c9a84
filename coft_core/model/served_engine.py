"""Servers as engines: log-probabilities of next tokens from vLLM, servers with its interface, or llama-server.

Rows hold only their tokens. Every step sends them whole, since servers keep what they have read of a text themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AutoTokenizer, GenerationConfig

from coft_core.errors import EngineError, ModelLoadError
from coft_core.model.language_model import LanguageModel, tokenizer_digest
from coft_core.model.load import model_source, only_local
from coft_core.model.loading import LoadingPhase, LoadingProgress, explain
from coft_core.model.noise import measure_noise
from coft_core.model.requirements import require_offsets, require_same_tokens, require_same_vocabulary
from coft_core.model.served import DIGEST, ServedModel
from coft_core.model.server_client import RefusalError, ServerClient
from coft_core.model.slots import RowTokens

FEWER = (1000, 100, 50, 20, 10, 5)
"""Numbers of most likely tokens that are tried where a server does not give all."""
PROMPTS, NUMBERS = 16, 1 << 20
"""Prompts of one request, and log-probabilities of its answer, at most; two prompts are always sent together."""
LEAST = -9999.0
"""Log-probability of what a server says cannot be; vLLM says the same number."""
SLACK = 0.01
"""By how much the logarithm of all probabilities together may miss 0, through rounding."""
ALL = -1
"""What vLLM takes for all tokens."""
MOST_NAMED = 128
"""Tokens that can be asked for by name in one request."""

Returned = tuple[list[int], list[float]]
"""Token ids that came back for one prompt, and their log-probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a server says of itself and its model; ``said`` are the parts that identify the model."""

    program: str
    said: dict[str, Any]
    context_length: int | None
    vocabulary_size: int | None = None
    end_token: str = ""
    parameter_count: int = 0


class Api(Protocol):
    """How one kind of server is asked."""

    path: str

    def about(self) -> About:
        """What the server says of itself and its model."""

    def body(self, prompts: Sequence[Sequence[int]], count: int) -> dict[str, Any]:
        """The request for the next token of some prompts, with so many of the most likely ones."""

    def naming(self, prompts: Sequence[Sequence[int]], tokens: Sequence[int]) -> dict[str, Any] | None:
        """The request for the probabilities of these tokens; None where the server takes no names."""

    def returned(self, answer: Any) -> list[Returned]:
        """What came back for each prompt."""

    def encoded(self, text: str) -> list[int] | None:
        """The server's own tokens of a text; None where it does not say."""


class Completions:
    """vLLM, and servers with the same interface."""

    path = "/v1/completions"

    def __init__(self, client: ServerClient, model: str) -> None:
        self._client, self._model = client, model

    def about(self) -> About:
        """The model's entry, without what changes at every start."""
        listed = (self._client.get("/v1/models") or {}).get("data", [])
        known = next((each for each in listed if self._model in ("", each["id"])), None)
        if known is None:
            names = ", ".join(each["id"] for each in listed) or "none"
            raise RefusalError(f"The server has no model {self._model!r}; it has: {names}.")
        self._model = known["id"]
        version = (self._client.get("/version") or {}).get("version", "")
        said = {name: known.get(name) for name in ("id", "root", "parent", "max_model_len")}
        return About(program=f"vLLM {version}".strip(), said=said, context_length=known.get("max_model_len"))

    def body(self, prompts: Sequence[Sequence[int]], count: int) -> dict[str, Any]:
        """Nothing else than temperature 1 is applied, whatever the model's own generation settings say."""
        plain = {"temperature": 1.0, "top_p": 1.0, "top_k": ALL, "min_p": 0.0, "repetition_penalty": 1.0}
        asked = {"logprobs": count, "max_tokens": 1, "return_tokens_as_token_ids": True}
        return {"model": self._model, "prompt": [list(prompt) for prompt in prompts], **asked, **plain}

    def naming(self, prompts: Sequence[Sequence[int]], tokens: Sequence[int]) -> dict[str, Any]:
        """What earlier versions of vLLM do not know, they pass over."""
        return {**self.body(prompts, 1), "logprob_token_ids": list(tokens)}

    def returned(self, answer: Any) -> list[Returned]:
        """Choices in the order of prompts; the keys are ``token_id:<id>``."""
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        tops = [choice["logprobs"]["top_logprobs"][0] for choice in choices]
        return [([int(name.removeprefix("token_id:")) for name in top], list(top.values())) for top in tops]

    def encoded(self, text: str) -> list[int] | None:
        """From ``/tokenize``, which vLLM has."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        (answer,) = self._client.post("/tokenize", [body])
        return None if answer is None else answer["tokens"]


class LlamaServer:
    """The server of llama.cpp, by its own interface: its numbers are those before sampling."""

    path = "/completion"

    def __init__(self, client: ServerClient, model: str) -> None:
        self._client, self._model, self._vocabulary = client, model, 0

    def about(self) -> About:
        """The file's name and figures, without where it lies and how many it serves."""
        props, listed = self._client.get("/props"), self._client.get("/v1/models")
        known = listed["data"][0]
        if self._model not in ("", known["id"], *known.get("aliases", ())):
            raise RefusalError(f"The server has no model {self._model!r}; it has: {known['id']}.")
        meta = known["meta"]
        self._vocabulary = meta["n_vocab"]
        figures = ("n_vocab", "n_ctx_train", "n_embd", "n_params", "size", "ftype")
        return About(
            program=f"llama-server {props['build_info']}",
            said={"id": known["id"], **{name: meta.get(name) for name in figures}},
            context_length=props["default_generation_settings"]["n_ctx"],
            vocabulary_size=self._vocabulary,
            end_token=props.get("eos_token", ""),
            parameter_count=meta.get("n_params", 0),
        )

    def body(self, prompts: Sequence[Sequence[int]], count: int) -> dict[str, Any]:
        """The likeliest token is taken, which asks least of the server; it changes no number."""
        asked = {"n_probs": self._vocabulary if count == ALL else count, "n_predict": 1, "post_sampling_probs": False}
        kept = {"cache_prompt": True, "response_fields": ["index", "completion_probabilities"]}
        return {"prompt": [list(prompt) for prompt in prompts], **asked, **kept, "samplers": ["top_k"], "top_k": 1}

    def naming(self, prompts: Sequence[Sequence[int]], tokens: Sequence[int]) -> None:
        """It gives as many of the most likely tokens as are asked for."""

    def returned(self, answer: Any) -> list[Returned]:
        """One answer a prompt, or a single one."""
        answers = sorted(answer if isinstance(answer, list) else [answer], key=lambda each: each.get("index", 0))
        tops = [each["completion_probabilities"][0]["top_logprobs"] for each in answers]
        return [([token["id"] for token in top], [token["logprob"] for token in top]) for top in tops]

    def encoded(self, text: str) -> list[int] | None:
        """From ``/tokenize``."""
        (answer,) = self._client.post("/tokenize", [{"content": text, "add_special": False}])
        return None if answer is None else answer["tokens"]


KINDS = {"vllm": Completions, "llama-server": LlamaServer}


class ServedEngine:
    """A model that a server computes."""

    computes_here = False
    token_bytes = weight_bytes = 0

    def __init__(self, served: ServedModel, tokenizer: Any) -> None:
        """Ask the server what it has, and how many log-probabilities it gives."""
        self.name, self._client, self._at_once = served.title, ServerClient(served), served.concurrency
        self._api: Api = KINDS[served.kind](self._client, served.model)
        self.about = self._understood(self._api.about)
        self.title, self.parameter_count = self.about.program, self.about.parameter_count
        self.vocabulary_size = self.about.vocabulary_size or len(tokenizer)
        self.most_likely: int | None = None
        self._find_out(served.most_likely)
        self._takes_names = self.most_likely is not None and self._can_name()
        self.checked = self._understood(lambda: self._api.encoded("a")) is not None

    @property
    def digest(self) -> str:
        """Digest of what the server says of its model."""
        return f"{DIGEST}:{hashlib.sha256(json.dumps(self.about.said, sort_keys=True).encode()).hexdigest()}"

    @property
    def note(self) -> str:
        """What is not known of the model because a server has it, in sentences."""
        note = f"Computed by {self.title} on a server; the weights were not seen."
        if self.most_likely is not None:
            note += f" The server returns only the {self.most_likely} most likely tokens"
            note += " and those that the other branch returned." if self._takes_names else "."
        if not self.checked:
            note += " The server does not say how it makes tokens, so its tokenizer was not compared with the one here."
        return note

    def encode(self, text: str) -> list[int]:
        """Tokens of a text by the server's own tokenizer."""
        return self._understood(lambda: self._api.encoded(text)) or []

    def open_rows(self, tokens: RowTokens) -> ServedRows:
        """Rows with these tokens."""
        return ServedRows(self, tokens)

    def read(self, ids: Tensor, begin: int = 0) -> Iterator[Tensor]:
        """Log-probabilities after each token of ``(R, L)`` from a column on, some columns at a time, ``(R, w, V)``."""
        rows, length = ids.shape
        width = max(1, self._size(self.most_likely or ALL) * self._at_once // rows)
        for start in range(begin, length, width):
            ends = range(start + 1, min(start + width, length) + 1)
            found = self.next_tokens([row[:end] for end in ends for row in ids.tolist()], rows)  # (w * R, V)
            yield found.view(len(ends), rows, -1).transpose(0, 1)

    def next_tokens(self, prompts: Sequence[Sequence[int]], width: int = 1) -> Tensor:
        """Log-probabilities of the token after each prompt, ``(N, V)``; ``-inf`` for those that did not come back.

        So many prompts belong together: what came back for one is asked for by name for the others, so that it is known
        for all, unless they are too many.
        """
        found = torch.stack([self._row(*each) for each in self._asked(prompts, self.most_likely or ALL)])  # (N, V)
        if not self._takes_names or width == 1:
            return found
        groups = found.view(-1, width, self.vocabulary_size)  # (N / width, width, V)
        starts, names, bodies = [], [], []
        for start, group in zip(range(0, len(prompts), width), groups, strict=True):
            tokens = (group > -torch.inf).any(0).nonzero()[:, 0].tolist()
            if len(tokens) <= MOST_NAMED:
                starts.append(start)
                names.append(tokens)
                bodies.append(self._api.naming(prompts[start : start + width], tokens) or {})
        for start, tokens, part in zip(starts, names, self._answers(bodies, [width] * len(bodies)), strict=True):
            values = self._understood(lambda part=part, tokens=tokens: _named(part, tokens))  # (width, n)
            known = found[start : start + width, tokens]
            found[start : start + width, tokens] = torch.where(known > -torch.inf, known, values)
        return found

    def _size(self, count: int) -> int:
        """Prompts of one request."""
        return max(2, min(PROMPTS, NUMBERS // (self.vocabulary_size if count == ALL else count)))

    def _asked(self, prompts: Sequence[Sequence[int]], count: int) -> list[Returned]:
        size = self._size(count)
        pieces = [prompts[start : start + size] for start in range(0, len(prompts), size)]
        parts = self._answers([self._api.body(piece, count) for piece in pieces], [len(piece) for piece in pieces])
        return [returned for part in parts for returned in part]

    def _answers(self, bodies: Sequence[dict[str, Any]], sizes: Sequence[int]) -> list[list[Returned]]:
        """What came back for requests with so many prompts each."""
        answers = self._client.post(self._api.path, bodies)
        if None in answers:
            raise RefusalError(f"The server of {self.name!r} has no {self._api.path}; see that its kind is right.")
        found = [self._understood(lambda answer=answer: self._api.returned(answer)) for answer in answers]
        if [len(each) for each in found] != list(sizes):
            raise EngineError(f"The server of {self.name!r} answered another number of prompts than were sent.")
        return found

    def _can_name(self) -> bool:
        """Whether the server gives the probabilities of tokens that are named; others give the most likely ones."""
        names = [0, 1, 2]
        if (body := self._api.naming([[0]], names)) is None:
            return False
        try:
            (((ids, _),),) = self._answers([body], [1])
        except RefusalError:
            return False
        return set(names) <= set(ids)

    def _understood(self, read: Any) -> Any:
        try:
            return read()
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, EngineError):
                raise
            raise EngineError(
                f"The server of {self.name!r} answers in another form than was asked ({type(error).__name__}: "
                f"{str(error)[:80]}); see that its kind is right, and that it returns tokens as ids."
            ) from error

    def _find_out(self, wanted: int | None) -> None:
        """How many log-probabilities the server gives: those of all tokens, or the most of a few numbers."""
        for count in (wanted,) if wanted else (ALL, *FEWER):
            try:
                ((ids, _),) = self._asked([[0]], count)
            except RefusalError:
                if count == FEWER[-1] or wanted:
                    raise
                continue
            if count == ALL and len(ids) >= self.vocabulary_size:
                self.vocabulary_size = max(ids) + 1
                return
            if 0 < count <= len(ids):
                self.most_likely = count
                return
        raise RefusalError(
            f"The server of {self.name!r} returns {len(ids)} log-probabilities where {count} were asked; ask for fewer "
            "(most_likely), or start it so that it returns more."
        )

    def _row(self, ids: list[int], log_p: list[float]) -> Tensor:
        """One row of log-probabilities, ``(V,)``."""
        places, expected = torch.tensor(ids), self.most_likely or self.vocabulary_size
        values = self._understood(lambda: torch.tensor(log_p, dtype=torch.float32).clamp_min(LEAST))  # (n,)
        if len(ids) < expected or min(ids) < 0 or max(ids) >= self.vocabulary_size:
            raise EngineError(
                f"The server of {self.name!r} returned {len(ids)} log-probabilities of tokens up to {max(ids)}, where "
                f"{expected} of {self.vocabulary_size} tokens were asked; load the model again."
            )
        if self.most_likely is not None:
            # The token that was drawn comes back too, however unlikely it is.
            values, order = values.topk(expected)
            places = places[order]
        total = float(values.logsumexp(0))
        if not -torch.inf < total < SLACK or (self.most_likely is None and total < -SLACK):
            raise EngineError(
                f"What the server of {self.name!r} returns are not log-probabilities (their sum is exp({total:.3g}) "
                "instead of 1); have it return those before sampling (vLLM: --logprobs-mode "
                "raw_logprobs)."
            )
        return torch.full((self.vocabulary_size,), -torch.inf).index_put_((places,), values)


def _named(part: Sequence[Returned], tokens: Sequence[int]) -> Tensor:
    """The log-probabilities of these tokens after each prompt, ``(N, n)``."""
    rows = [dict(zip(ids, log_p, strict=True)) for ids, log_p in part]
    return torch.tensor([[row[token] for token in tokens] for row in rows]).clamp_min(LEAST)


class ServedRows:
    """Rows of which only the tokens are held."""

    size = shared_length = 0
    may_join = False

    def __init__(self, engine: ServedEngine, tokens: RowTokens) -> None:
        self._engine, self._tokens = engine, tokens

    def size_after(self, count: int) -> int:
        """Nothing is held here."""
        return 0

    def logits(self) -> Tensor:
        """Log-probabilities that follow each row's newest token, ``(R, V)``."""
        written = self._tokens.after(0).tolist()
        prompts = [[*prompt, *tail] for prompt, tail in zip(self._tokens.prompts, written, strict=True)]
        return self._engine.next_tokens(prompts, self._tokens.width)

    def cut(self) -> None:
        """Nothing is held here."""

    def copied(self, tokens: RowTokens) -> ServedRows:
        """Other rows of the same server."""
        return ServedRows(self._engine, tokens)

    def keep(self, rows: Sequence[int], tokens: RowTokens) -> None:
        """Go on with some of the rows, whose tokens are given."""
        self._tokens = tokens


def load_served(
    served: ServedModel, chat: bool | None = None, progress: LoadingProgress | None = None
) -> LanguageModel:
    """A model that a server computes, with the tokenizer that belongs to it.

    Raises:
        ModelLoadError: The server does not answer, has no such model or makes other tokens, or the tokenizer cannot
            be had; the sentence says what to do.
    """
    told, name = progress or (lambda phase: None), served.title
    try:
        told(LoadingPhase.TOKENIZER)
        # A folder need hold no more of the model than its tokenizer.
        folder = Path(served.tokenizer).expanduser()
        source = str(folder) if folder.is_dir() else model_source(served.tokenizer)
        local = only_local(source, None)
        tokenizer: Any = AutoTokenizer.from_pretrained(source, use_fast=True, local_files_only=local)
        require_offsets(name, tokenizer)
        told(LoadingPhase.WEIGHTS)
        engine = ServedEngine(served, tokenizer)
        require_same_vocabulary(name, len(tokenizer), engine.vocabulary_size)
        if engine.checked:
            require_same_tokens(name, engine, tokenizer)
        if chat and not tokenizer.chat_template:
            raise ModelLoadError(f"{name!r} has no chat template; load it with chat=False.")
        lengths = [length for length in (engine.about.context_length, served.context_length) if length]
        model = LanguageModel(
            name=name,
            revision=engine.about.program,
            module=engine,
            tokenizer=tokenizer,
            device=torch.device("cpu"),
            dtype=torch.float32,
            context_length=min(lengths or [int(min(tokenizer.model_max_length, 1 << 20))]),
            vocabulary_size=engine.vocabulary_size,
            end_token_ids=_end_tokens(tokenizer, source, local, engine.about.end_token),
            chat=bool(tokenizer.chat_template) if chat is None else chat,
            weights_digest=engine.digest,
            tokenizer_digest=tokenizer_digest(tokenizer),
            places=("server",),
            most_likely=engine.most_likely,
        )
        told(LoadingPhase.WARM_UP)
        measure_noise(model)
        return model
    except ModelLoadError:
        raise
    except EngineError as error:
        raise ModelLoadError(str(error)) from error
    except OSError as error:
        raise ModelLoadError(explain(served.tokenizer, error)) from error


def _end_tokens(tokenizer: Any, source: str, local: bool, stated: str) -> frozenset[int]:
    """What ends a text, by the tokenizer, the generation settings beside it and the server."""
    try:
        configured = GenerationConfig.from_pretrained(source, local_files_only=local).eos_token_id
    except OSError:
        configured = None
    ids = configured if isinstance(configured, list) else [configured]
    known = tokenizer.get_vocab().get(stated) if stated else None
    return frozenset(int(i) for i in [*ids, known, tokenizer.eos_token_id] if i is not None)
