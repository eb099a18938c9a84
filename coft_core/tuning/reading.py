"""What policies make of one item's choices; a reading that several of them need is run once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from coft_core.deciding import remember
from coft_core.engine.branches import BranchSpec
from coft_core.engine.group import score_branches
from coft_core.engine.memory.size import rows_size
from coft_core.engine.model import LanguageModel
from coft_core.engine.room import OwnRoom, Room
from coft_core.masking.continuation import continuation_ids
from coft_core.masking.spans import SpanDetector, default_detector
from coft_core.planning import Plan, plan
from coft_core.policies.base import Past, Policy, PreparesByWriting
from coft_core.scorers.base import ToxicityScorer
from coft_core.tuning.items import TuningItem


@dataclass(frozen=True, slots=True)
class Written:
    """What a policy says of one token of a given continuation.

    Attributes:
        log_p: Log-probability with which it is drawn, up to the certified set's normalisation; ``-inf`` if refused.
        greedy: Whether it is the policy's greedy choice.
    """

    log_p: float
    greedy: bool


class ItemReader:
    """Reads one item's choices under policies, and keeps the logits of every reading until the item is done."""

    def __init__(
        self,
        model: LanguageModel,
        item: TuningItem,
        models: Mapping[str, LanguageModel] | None,
        scorers: Mapping[str, ToxicityScorer] | None,
        detector: SpanDetector | None,
        room: Room | None = None,
    ) -> None:
        """Find the item's spans; nothing runs yet.

        Args:
            model: The model.
            item: The item.
            models: Further models by name; None loads them.
            scorers: Toxicity scorers by name; None loads them.
            detector: Finds the spans if the item gives none.
            room: Where the memory of readings is taken from; None takes it without asking.
        """
        self._model, self._item = model, item
        self._models, self._scorers = models, scorers
        self._room = room or OwnRoom()
        self._detector = detector or default_detector()
        self._spans = self._detector.detect(item.prompt) if item.spans is None else item.spans
        self._logits: dict[Any, Tensor] = {}

    def choices(self, policy: Policy) -> list[list[Written]]:
        """Every choice, token by token, the answer first."""
        make = partial(
            plan,
            self._model,
            self._item.prompt,
            policy,
            self._spans,
            detector=self._detector,
            models=self._models,
            scorers=self._scorers,
        )
        size = 0
        if isinstance(policy, PreparesByWriting):
            size = policy.writing_size(self._model, self._models or {}, self._item.prompt)
        prepared = self._room.run(size, make) if size else make()
        return [self._written(prepared, text) for text in self._item.choices]

    def _written(self, prepared: Plan, text: str) -> list[Written]:
        tokens = tuple(continuation_ids(self._model, prepared.prompt, text))
        branches = prepared.policy.branches(prepared.prompt)
        names = tuple(branch.name for branch in branches)
        logits = self._of(prepared, branches, tokens)  # (C, B, V)
        found, memory = [], None
        for index, token in enumerate(tokens):
            past = Past(self._model, prepared.prompt, tokens[:index], memory)
            with torch.inference_mode():
                views = prepared.policy.views(logits[index : index + 1], index, names, (past,))
            found.append(_one(views.log_p_fused[0], None if views.certified is None else views.certified[0], token))
            memory = remember(prepared.policy, memory, logits[index], token, names)
        return found

    def _of(self, prepared: Plan, branches: Sequence[BranchSpec], tokens: tuple[int, ...]) -> Tensor:
        models = prepared.all_models
        keys = [(id(models[own.model].module), own.hooks, own.input_ids, tokens) for own in branches]
        missing = [own for own, key in zip(branches, keys, strict=True) if key not in self._logits]
        if missing:
            length = max(len(own.input_ids) for own in missing) + len(tokens)
            size = sum(rows_size(models[own.model], 1, length) for own in missing)
            scored = self._room.run(size, partial(score_branches, models, missing, tokens))  # (C, M, V)
            new = [key for key in keys if key not in self._logits]
            self._logits.update(zip(new, scored.unbind(1), strict=True))
        rows = [self._logits[key] for key in keys]
        width = min(row.shape[-1] for row in rows)
        same = all(row.dtype == rows[0].dtype for row in rows)
        dtype = rows[0].dtype if same else torch.float32
        return torch.stack([row[:, :width].to(rows[0].device, dtype) for row in rows], dim=1)  # (C, B, V)


def _one(log_p: Tensor, certified: Tensor | None, token: int) -> Written:
    """One token; an empty certified set falls back to all tokens, as it does in decoding. Both tensors are ``(V,)``."""
    if certified is not None and bool(certified.any()):
        log_p = torch.where(certified, log_p, -torch.inf)
    return Written(float(log_p[token]), int(log_p.argmax()) == token)
