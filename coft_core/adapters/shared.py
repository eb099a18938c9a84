"""What adapters share: choosing a policy, text while it is written, and what a policy says of a prompt's own tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coft_core.conformal.calibration import Calibration
from coft_core.decode.plan import Plan
from coft_core.errors import InvalidInputError
from coft_core.model.branches import attached
from coft_core.model.forced import teacher_forced_logits
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Parameter, Past, Policy
from coft_core.policies.registry import method
from coft_core.text.thinking import ChainThinking, Divided

CALIBRATED = ("lam", "temperature", "top_p", "top_k")
"""Controls that a calibration was made for, and which it therefore sets where nothing else is said."""

TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")


def chosen_policy(name: str, options: Mapping[str, Any]) -> Policy:
    """A policy by its name and options, whose values may be texts.

    Besides parameters and controls there are ``calibration`` (path of a saved one), ``alpha`` (a risk level to read it
    at) and ``accept_mismatch``. What a calibration was made for holds where nothing else is said.
    """
    chosen = method(name)
    given = {key: value for key, value in options.items() if value is not None}
    path, alpha = given.pop("calibration", None), given.pop("alpha", None)
    own = {item.name: item for item in chosen.parameters}
    known = {item.name for item in fields(chosen.policy) if item.init and not item.name.startswith("method_")}
    if unknown := sorted(set(given) - known):
        raise InvalidInputError(
            f"The policy {name!r} has no option {unknown[0]!r}; it has {', '.join(sorted(known | {'alpha'}))}."
        )
    parameters = {key: _parameter(own[key], given[key]) for key in given if key in own}
    controls = {key: _control(key, value) for key, value in given.items() if key not in own}
    if path is not None:
        if not chosen.calibrated:
            raise InvalidInputError(f"The policy {name!r} takes no calibration; leave it out.")
        try:
            calibration = Calibration.from_bytes(Path(str(path)).expanduser().read_bytes())
        except OSError as error:
            raise InvalidInputError(f"The calibration {str(path)!r} cannot be read ({error.strerror}).") from error
        made_for = {key: getattr(calibration.fingerprint, key) for key in CALIBRATED if key in known}
        controls = {**made_for, **controls, "calibration": calibration}
    policy = chosen.build(parameters, **controls)
    return policy if alpha is None else policy.changed(None, float(alpha), None)


def _parameter(parameter: Parameter, value: Any) -> Any:
    """A value in the parameter's type; what cannot be read stays as it is and is refused by its check."""
    if parameter.kind == "texts":
        return (value,) if isinstance(value, str) else tuple(value)
    if parameter.kind == "flag" and isinstance(value, str):
        return _flag(value)
    if parameter.kind in ("number", "whole") and isinstance(value, str):
        return _number(value)
    return str(value) if parameter.kind in ("text", "choice", "model", "file") else value


def _control(name: str, value: Any) -> Any:
    if name == "whitelist":
        return tuple(value.split(";")) if isinstance(value, str) else tuple(value)
    if name == "accept_mismatch" and isinstance(value, str):
        return _flag(value)
    if name in CALIBRATED and isinstance(value, str):
        return _number(value)
    return value


def _flag(value: str) -> Any:
    word = value.strip().lower()
    return True if word in TRUE else False if word in FALSE else value


def _number(value: str) -> Any:
    try:
        number = float(value)
    except ValueError as error:
        raise InvalidInputError(f"{value!r} is no number; write it in digits.") from error
    return int(number) if value.strip().lstrip("+-").isdigit() else number


UNFINISHED = "\ufffd"
"""What a tokenizer gives for a character of which not all tokens are written yet."""


class SettledText:
    """Text up to a stop, which ends an answer and not the thinking before it, handed out when it is settled."""

    def __init__(self, model: LanguageModel, stops: Sequence[str], thinking: ChainThinking | None = None) -> None:
        """Nothing is written yet; without ``thinking`` all is the answer."""
        self._model, self._stops, self._chain = model, tuple(stop for stop in stops if stop), thinking
        self._text, self._given, self._thought, self._thought_given = "", 0, "", 0
        self.stopped = False

    def more(self, token_ids: Sequence[int]) -> Divided:
        """What has become settled, of all tokens that are written so far."""
        divided = self._divided(token_ids)
        self._text, self._thought = divided.answer, divided.thinking
        found = [place for stop in self._stops if (place := self._text.find(stop)) >= 0]
        if found:
            self.stopped, self._text = True, self._text[: min(found)]
            return self._out(len(self._text), len(self._thought))
        settled = min([len(self._text.rstrip(UNFINISHED)), *(_open(self._text, stop) for stop in self._stops)])
        if self._chain is not None:
            settled = min(settled, _open(self._text, self._chain.marks.opens))
            # White space may turn out to stand between a thinking and the answer.
            settled = settled if self._text.strip() else 0
        thought = len(self._thought.rstrip(UNFINISHED))
        if self._chain is not None and not divided.ended:
            thought = min(thought, _open(self._thought, self._chain.marks.closes))
        return self._out(settled, thought)

    def rest(self) -> Divided:
        """What was held back; the chain has ended."""
        return self._out(len(self._text), len(self._thought))

    def _divided(self, token_ids: Sequence[int]) -> Divided:
        model = self._model
        if self._chain is None:
            return Divided("", model.continuation_text(token_ids), True)
        return self._chain.divided(token_ids, [model.token_text(token) for token in token_ids], model.continuation_text)

    def _out(self, end: int, thought_end: int) -> Divided:
        answer, thinking = self._text[self._given : end], self._thought[self._thought_given : thought_end]
        self._given, self._thought_given = max(self._given, end), max(self._thought_given, thought_end)
        return Divided(thinking, answer, self.stopped)


def _open(text: str, mark: str) -> int:
    """Where an unfinished stop or mark begins at the end of a text; its end where there is none."""
    lengths = range(min(len(mark) - 1, len(text)), 0, -1)
    return len(text) - next((length for length in lengths if text.endswith(mark[:length])), 0)


VIEWED = 64
"""Positions from which views are made at a time."""


@torch.inference_mode()
def prompt_log_probabilities(plan: Plan) -> Tensor:
    """Log-probabilities of what follows each token of a prompt but the last, ``(L - 1, V)``, without a threshold."""
    plan.model.require_all_tokens("Scoring a prompt's own tokens")
    branches = plan.policy.branches(plan.prompt)
    lengths = {len(branch.input_ids) for branch in branches}
    if len(lengths) > 1 or plan.policy.looks_back:
        raise InvalidInputError(
            f"The policy {plan.policy.title} cannot score a prompt's own tokens, since its readings differ in length "
            "or in what came before; ask for a continuation instead."
        )
    if lengths == {1}:
        raise InvalidInputError("The prompt is a single token, of which nothing can be said; give a longer one.")
    by_branch = []
    for branch in branches:
        model = plan.all_models[branch.model]
        with attached(model.module, branch.hooks):
            (logits,) = teacher_forced_logits(model, [(branch.input_ids[:1], branch.input_ids[1:])])
        by_branch.append(logits)  # (L - 1, V)
    width = min(logits.shape[-1] for logits in by_branch)
    stacked = torch.stack([logits[:, :width].to(by_branch[0].device).float() for logits in by_branch], dim=1)
    names = tuple(branch.name for branch in branches)
    past = Past(plan.model, plan.prompt)
    parts = [
        plan.policy.views(rows, 0, names, [past] * len(rows)).log_p_fused for rows in torch.split(stacked, VIEWED)
    ]  # of (n, V)
    return torch.cat(parts)
