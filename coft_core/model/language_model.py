"""A loaded language model: the module, its tokenizer, and what identifies both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedTokenizerFast
from transformers.integrations.accelerate import load_offloaded_parameter

from coft_core.errors import InvalidInputError
from coft_core.model.engine import Engine
from coft_core.model.int_weights import int_layers
from coft_core.text.rendering import FORMATS, Rendering, parse_moment, rendering_label, rendering_note, thinking_switch
from coft_core.text.turns import Frame

FULL_DIGEST_BYTES = 512 * 1024 * 1024
SAMPLED_ELEMENTS = 4096


def weights_digest(module: nn.Module) -> str:
    """Digest of a module's parameters, ``"sha256:<64 hex digits>"``: name, shape, type and bytes of each.

    Above 512 MB only 4,096 evenly spaced elements of each parameter count, and the digest begins with ``sampled:``. It
    does not depend on where the weights are; of a model that is split over processes all must ask for it together.
    """
    parameters = sorted(module.state_dict().items())
    sampled = sum(p.numel() * p.element_size() for _, p in parameters) > FULL_DIGEST_BYTES
    digest = hashlib.sha256()
    for name, parameter in parameters:
        for part, tensor in _plain(name, _held(module, name, parameter)):
            digest.update(f"{part}|{tuple(tensor.shape)}|{tensor.dtype}|".encode())
            digest.update(_bytes(_spaced(tensor) if sampled else tensor))
    return f"{'sampled' if sampled else 'sha256'}:{digest.hexdigest()}"


def tokenizer_digest(tokenizer: PreTrainedTokenizerFast) -> str:
    """Digest of a fast tokenizer's complete definition, ``"sha256:<64 hex digits>"``."""
    backend: Any = tokenizer.backend_tokenizer
    # Truncation and padding are left behind by earlier calls and change no token of a prompt.
    definition = backend.from_str(backend.to_str())
    definition.no_truncation()
    definition.no_padding()
    return f"sha256:{hashlib.sha256(definition.to_str().encode()).hexdigest()}"


def _held(module: Any, name: str, parameter: Tensor) -> Tensor:
    """A parameter with its values: those that are kept elsewhere are read, those that are split are put together."""
    if parameter.is_meta:
        read: Tensor = load_offloaded_parameter(module, name)
        return read.to(parameter.dtype)
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def _plain(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A tensor by itself, or the plain tensors of which a quantised one is made."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield name, tensor
        return
    for part in sorted(flatten()[0]):
        if (inner := getattr(tensor, part)) is not None:
            yield f"{name}.{part}", inner


def _spaced(parameter: Tensor) -> Tensor:
    flat = parameter.detach().reshape(-1)
    count = min(SAMPLED_ELEMENTS, flat.numel())
    if count == 0:
        return flat
    index = torch.linspace(0, flat.numel() - 1, count, dtype=torch.float64).long()
    return flat[index.to(flat.device)]


def _bytes(tensor: Tensor) -> bytes:
    contiguous = tensor.detach().cpu().contiguous()
    return contiguous.reshape(-1).view(torch.uint8).numpy().tobytes() if contiguous.numel() else b""


ANCHOR = "a"
"""A plain token put before others when decoding, since tokenizers treat the start of a text specially."""

PREFILL_TOKENS = 16_384
"""What a forward reads at most unless told otherwise: as much as a batch of a calibration on an accelerator."""

SNAPSHOT_BYTES = 256 << 20
"""Copies of a model's states that one batch of branches holds at most unless told otherwise: at least two."""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A frozen causal language model with its tokenizer.

    Attributes:
        module: The module of transformers, or another engine.
        device: Where token ids go and logits come from, also of a model that is spread over several devices.
        dtype: Floating type of the weights, or of what is computed with them where they are quantised.
        vocabulary_size: V, the width of the logits (may exceed the tokenizer's by padding rows).
        chat: Whether prompts go through the tokenizer's chat template.
        places: The devices that hold the weights, each once, such as ``("cuda:0", "cuda:1", "disk")``.
        quantization: ``"none"``, ``"8-bit"``, ``"4-bit"``, or the method of a checkpoint that is quantised already.
        prefill_tokens: Tokens, over all rows, that one forward reads at most; longer prompts are read in pieces.
        snapshot_bytes: Bytes of copies of states that one batch of branches holds at most, where layers keep states.
        findings: What the engine has found out about the module once, by name, together with the module.
        rendering: How prompts are rendered for one plan; None renders each at the present moment.
        most_likely: How many of the most likely tokens the engine returns for each row, as log-probabilities; None
            where it returns the logits of all.
    """

    name: str
    revision: str
    module: Any
    tokenizer: PreTrainedTokenizerFast
    device: torch.device
    dtype: torch.dtype
    context_length: int
    vocabulary_size: int
    end_token_ids: frozenset[int]
    chat: bool
    weights_digest: str
    tokenizer_digest: str
    places: tuple[str, ...] = ()
    quantization: str = "none"
    prefill_tokens: int = PREFILL_TOKENS
    snapshot_bytes: int = SNAPSHOT_BYTES
    findings: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    rendering: Rendering | None = field(default=None, repr=False, compare=False)
    most_likely: int | None = None
    _texts: dict[int, str] = field(default_factory=dict, repr=False, compare=False)

    def finding(self, name: str) -> Any:
        """What was once found out about this very module and kept; None where nobody has looked."""
        module, finding = self.findings.get(name, (None, None))
        return finding if module is self.module else None

    def keep_finding(self, name: str, finding: Any) -> None:
        """Keep what was found out about the module."""
        self.findings[name] = (self.module, finding)

    @property
    def engine(self) -> Engine | None:
        """What computes the logits, if that is not transformers."""
        return self.module if isinstance(self.module, Engine) else None

    def require_all_tokens(self, what: str) -> None:
        """Refuse what needs the logits of all tokens, which a server may keep to itself."""
        if self.most_likely is not None:
            raise InvalidInputError(
                f"{what} needs the probabilities of all tokens, and {self.name} returns only the {self.most_likely} "
                "most likely; take COFT with one mask, vanilla decoding, or a server that returns all of them."
            )

    @property
    def dtype_name(self) -> str:
        """The weights' type without the ``torch.`` prefix."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def chat_template_digest(self) -> str:
        """Digest of the chat template in use, or ``"none"``."""
        if not self.chat:
            return "none"
        return hashlib.sha256(str(self.tokenizer.chat_template).encode()).hexdigest()

    @property
    def prompting(self) -> Rendering:
        """How prompts are put before the model, as :func:`coft_core.mask_prompt` takes it."""
        return self.rendering or Rendering(self.chat, datetime.now())

    @property
    def rendering_label(self) -> str:
        """What the chat template in use makes of a fixed text, as fingerprints hold it; empty without both."""
        moment = self.prompting.moment
        return rendering_label(self.tokenizer, moment) if self.chat and moment is not None else ""

    @property
    def rendering_note(self) -> str:
        """One sentence on a chat template that depends on more than the text; empty for others."""
        return rendering_note(self.rendering_label)

    def formatted(self, prompt_format: str) -> LanguageModel:
        """This model with prompts in its chat template (``chat``), without (``plain``), or as loaded (``auto``)."""
        if prompt_format not in FORMATS:
            raise InvalidInputError(f"There is no prompt format {prompt_format!r}; choose {', '.join(FORMATS)}.")
        if prompt_format == "chat" and not self.tokenizer.chat_template:
            raise InvalidInputError(f"{self.name!r} has no chat template; choose the plain prompt format.")
        chat = self.chat if prompt_format == "auto" else prompt_format == "chat"
        return self if chat == self.chat else replace(self, chat=chat, rendering=None)

    def dated(self, when: str | datetime | None = None) -> LanguageModel:
        """This model with prompts rendered at one local day or time, such as ``"2026-11-21"``.

        None takes the moment that it has already, or the present.
        """
        moment = parse_moment(when) if isinstance(when, str) else when
        if moment is None and self.rendering is not None:
            return self
        return replace(self, rendering=Rendering(self.chat, moment or datetime.now(), frame=self.prompting.frame))

    def framed(self, frame: Frame) -> LanguageModel:
        """This model with every prompt in a frame: a system prompt, thinking or not, what the answer begins with."""
        if frame == self.prompting.frame:
            return self
        return replace(self, rendering=replace(self.prompting, frame=frame))

    @property
    def thinking(self) -> str:
        """``"on"`` or ``"off"`` where the model is asked to think or not to; empty where its template decides."""
        asked = self.prompting.frame.thinking
        return "" if asked == "auto" or not self._switches_thinking else asked

    @property
    def thinking_note(self) -> str:
        """One sentence on thinking that is asked for in vain; empty otherwise."""
        asked = self.prompting.frame.thinking
        if asked == "auto" or self._switches_thinking:
            return ""
        why = "this model's chat template does not ask for it" if self.chat else "prompts go through no chat template"
        return f"Thinking is set to {asked}, and {why}, so the setting changes nothing."

    @property
    def _switches_thinking(self) -> bool:
        return self.chat and bool(thinking_switch(str(self.tokenizer.get_chat_template())))

    def rendered_as(self, rendering: Rendering) -> LanguageModel:
        """This model with prompts rendered as they once were."""
        return replace(self.formatted("chat" if rendering.chat else "plain"), rendering=rendering)

    def keeping_prompts(self) -> LanguageModel:
        """This model with a rendering of its own that keeps what it renders, as one plan needs it."""
        return replace(self, rendering=self.prompting.keeping())

    @property
    def parameter_count(self) -> int:
        """Number of parameters, tied ones counted once and packed ones each."""
        if self.engine is not None:
            return self.engine.parameter_count
        count = getattr(self.module, "num_parameters", None)
        plain = int(count()) if count is not None else sum(p.numel() for p in self.module.parameters())
        return plain + sum(
            layer.out_features * layer.in_features for layer in int_layers(self.module) if not layer.repeats
        )

    def arbitrary_tokens(self, rows: int, length: int, seed: int = 0) -> Tensor:
        """Token ids to probe the module with, ``(R, L)`` on the host."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(self.vocabulary_size, (rows, length), generator=generator)

    @torch.inference_mode()
    def plain_logits(self, ids: Tensor) -> Tensor:
        """Logits of rows of one length, read again in one forward without a cache, ``(R, L)`` to ``(R, L, V)``."""
        if self.engine is not None:
            return torch.cat(list(self.engine.read(ids)), dim=1)
        logits: Tensor = self.module(input_ids=ids.to(self.device), use_cache=False).logits
        return logits

    def token_text(self, token_id: int) -> str:
        """A token as it continues a sentence, or its raw vocabulary form where it is only part of a character."""
        if token_id not in self._texts:
            self._texts[token_id] = self._decode_one(token_id)
        return self._texts[token_id]

    def continuation_text(self, token_ids: Sequence[int]) -> str:
        """Text of generated tokens without special tokens, leading space included."""
        return self._decode([*self._anchor(), *token_ids], skip_special_tokens=True).removeprefix(ANCHOR)

    def single_token(self, text: str) -> int | None:
        """The id of a text that is exactly one token when it continues a sentence; None if it is not."""
        anchor = self._anchor()
        ids = self.tokenizer.encode(ANCHOR + text, add_special_tokens=False)
        if len(ids) == len(anchor) + 1 and ids[: len(anchor)] == anchor:
            return int(ids[-1])
        alone = self.tokenizer.encode(text, add_special_tokens=False)
        if len(alone) == 1 and self.token_text(int(alone[0])) == text:
            return int(alone[0])
        return None

    def _decode_one(self, token_id: int) -> str:
        if token_id >= len(self.tokenizer):
            return f"<unused {token_id}>"
        text = self._decode([*self._anchor(), token_id], skip_special_tokens=False)
        text = text.removeprefix(ANCHOR) if text.startswith(ANCHOR) else self._decode([token_id], False)
        if "\ufffd" in text or not text:
            return str(self.tokenizer.convert_ids_to_tokens(token_id))
        return text

    def _anchor(self) -> list[int]:
        # A step decodes a text for every candidate; to encode the anchor for each would take longer than the rest.
        if "anchor" not in self.findings:
            self.findings["anchor"] = self.tokenizer.encode(ANCHOR, add_special_tokens=False)
        return list(self.findings["anchor"])

    def _decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        decoded = self.tokenizer.decode(
            ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )
        return str(decoded)
