"""Chains that the deployed policy writes on calibration prompts, many prompts in one batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coft_core.calibrate.ledger import Entry, Ledger, LedgerPhase, ledger_key
from coft_core.calibrate.settings import Progress, counted
from coft_core.calibrate.task import Prepared, masked_views, prepared
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.part import JOINT, ChainRecord, Part
from coft_core.conformal.split import context_numbers
from coft_core.conformal.values import CalibrationValues
from coft_core.decode import loop
from coft_core.decode.plan import plan
from coft_core.errors import InvalidInputError, PromptTooLongError
from coft_core.model.forced import OwnRoom, Room, run_each
from coft_core.model.group import BASE, BranchGroup
from coft_core.model.language_model import LanguageModel
from coft_core.model.slots import rows_size
from coft_core.policies.base import Policy
from coft_core.policies.certify import joint_support
from coft_core.policies.coft import FusedPolicy
from coft_core.policies.sampling import choose, keyed_uniform
from coft_core.text.detection import SpanDetector, default_detector
from coft_core.types import Example

BATCH_ROWS = 32
"""Rows of one batch: each prompt has one for every branch."""

TRUTH_PATH = "factual draw"
"""Key of the draws of the true next token, apart from those of the chain."""


@dataclass(frozen=True, slots=True, eq=False)
class RolledOut:
    """What one prompt gave, step by step: T steps, with F masked views of the prompt."""

    truth: npt.NDArray[np.float32]  # (T, F), joint support of the true next token in each masked view
    chosen: npt.NDArray[np.float32]  # (T,), of the token that the policy chose, in the masked view that an audit shows
    tokens: npt.NDArray[np.int32]  # (T,), the chosen tokens


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """Chains of many prompts, in the prompts' order."""

    prompts: tuple[Prepared, ...]
    views: tuple[tuple[str, ...], ...]
    chains: tuple[RolledOut, ...]
    ended: tuple[bool, ...]

    def truth(self, view: str = JOINT) -> CalibrationValues:
        """Joint support in one masked view of the true next token, drawn from the factual branch."""
        having = [index for index, views in enumerate(self.views) if view in views]
        return self._collect(having, [self.chains[i].truth[:, self.views[i].index(view)] for i in having])

    @property
    def chosen(self) -> CalibrationValues:
        """Joint support of the tokens that the policy chose."""
        return self._collect(range(len(self.chains)), [chain.chosen for chain in self.chains])

    @property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """Chosen tokens of each prompt."""
        return tuple(tuple(chain.tokens.tolist()) for chain in self.chains)

    def _collect(self, prompts: Sequence[int], values: Sequence[npt.NDArray[np.float32]]) -> CalibrationValues:
        chosen = [self.prompts[index] for index in prompts]
        ended = [self.ended[index] for index in prompts]
        return CalibrationValues.of_chains(values, [p.context for p in chosen], [p.row for p in chosen], ended)


def chain_seed(seed: int, row: int) -> int:
    """Seed of one row's chain; generating the prompt with it under the same policy writes the same chain."""
    digest = hashlib.blake2b(f"{seed}|chain|{row}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")


@torch.inference_mode()
def generate_chains(
    model: LanguageModel,
    policy: Policy,
    prompts: Sequence[Prepared],
    max_new_tokens: int,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    batch_prompts: int | None = None,
    ledger: Ledger | None = None,
    phase: str = "chains",
    room: Room | None = None,
) -> Chains:
    """Let a policy continue prompts, and draw at every step what the factual branch would have written there."""
    if max_new_tokens < 1:
        raise InvalidInputError(f"The number of steps is {max_new_tokens}; ask for at least one.")
    _check_lengths(model, prompts)
    views = tuple(tuple(masked_views(policy, p.prompt)) for p in prompts)
    any_length = ((-1,),) * len(views)
    shapes = {"truth": tuple((-1, len(v)) for v in views), "chosen": any_length, "tokens": any_length}
    room = room or OwnRoom()

    def continued(batches: Sequence[Sequence[int]]) -> Iterator[list[Entry]]:
        chosen = [[prompts[place] for place in places] for places in batches]
        return run_each(
            room,
            (
                (
                    _size(model, policy, batch, max_new_tokens),
                    partial(_continue, batch, model, policy, max_new_tokens, seed),
                )
                for batch in chosen
            ),
        )

    entries = LedgerPhase(ledger, phase, tuple(p.row for p in prompts)).completed(
        shapes,
        lambda: _batches(model, policy, prompts, max_new_tokens, batch_prompts, room.most),
        continued,
        progress or (lambda count: None),
    )
    chains = tuple(RolledOut(**entry) for entry in entries)
    ended = tuple(bool(chain.tokens.size) and int(chain.tokens[-1]) in model.end_token_ids for chain in chains)
    return Chains(tuple(prompts), views, chains, ended)


def _check_lengths(model: LanguageModel, prompts: Sequence[Prepared]) -> None:
    for prompt in prompts:
        if (length := len(prompt.prompt.factual_ids)) >= model.context_length:
            raise PromptTooLongError(
                f"Example {prompt.row} has {length:,} tokens and the model takes {model.context_length:,}; shorten it."
            )


def _batches(
    model: LanguageModel,
    policy: Policy,
    prompts: Sequence[Prepared],
    steps: int,
    size: int | None,
    most_bytes: int | None,
) -> Iterator[list[int]]:
    """Indices of prompts with the same branches and similar lengths, all rows of a prompt in one batch.

    A prompt that the context cuts short goes alone and cuts no other.
    """
    lengths = [len(p.prompt.factual_ids) for p in prompts]
    branches = [tuple(branch.name for branch in policy.branches(p.prompt)) for p in prompts]
    order = sorted(range(len(prompts)), key=lambda i: (len(branches[i]), branches[i], lengths[i]))
    fitting = [i for i in order if lengths[i] + steps <= model.context_length]
    for names, alike in groupby(fitting, key=branches.__getitem__):
        most = size or max(BATCH_ROWS // len(names), 1)
        batch: list[int] = []
        for place in alike:
            # Lengths rise, so that the newest prompt is the longest.
            needed = rows_size(model, (len(batch) + 1) * len(names), lengths[place] + steps)
            if batch and (len(batch) == most or (most_bytes is not None and needed > most_bytes)):
                yield batch
                batch = []
            batch.append(place)
        yield batch
    yield from ([i] for i in order if lengths[i] + steps > model.context_length)


def _size(model: LanguageModel, policy: Policy, prompts: Sequence[Prepared], steps: int) -> int:
    """Bytes of keys and values of a batch at its end."""
    rows = sum(len(policy.branches(prompt.prompt)) for prompt in prompts)
    longest = max(len(prompt.prompt.factual_ids) for prompt in prompts)
    return rows_size(model, rows, min(longest + steps, model.context_length))


def _continue(prompts: Sequence[Prepared], model: LanguageModel, policy: Policy, steps: int, seed: int) -> list[Entry]:
    """The chains of a batch of prompts with the same branches, as :class:`RolledOut` has them."""
    branches = [policy.branches(p.prompt) for p in prompts]
    names = tuple(branch.name for branch in branches[0])
    seeds = [chain_seed(seed, p.row) for p in prompts]
    chains: list[loop.Chain[_Draw]] = [loop.Chain({BASE: model}, row, model.end_token_ids, steps) for row in branches]
    group = BranchGroup({BASE: model}, [branch for row in branches for branch in row])
    # The batch stays whole: rounding depends on it, and thresholds are compared with those of another day.
    while any(chain.finished is None for chain in chains):
        logits = group.logits()  # (G * B, V)
        loop.write(group, chains, logits, _drawn(policy, logits, group.generated, names, seeds))
    group.close()
    # (T, F + 2) each
    tables = [np.array([(draw.token_id, *draw.supports) for draw in chain.steps]) for chain in chains]
    return [
        {
            "truth": table[:, 2:].astype(np.float32),
            "chosen": table[:, 1].astype(np.float32),
            "tokens": table[:, 0].astype(np.int32),
        }
        for table in tables
    ]


@dataclass(frozen=True, slots=True)
class _Draw:
    """A chosen token; its joint support, then that of the true token in each masked view, F + 1 in all."""

    token_id: int
    supports: list[float]


def _drawn(policy: Policy, logits: Tensor, step: int, names: tuple[str, ...], seeds: Sequence[int]) -> list[_Draw]:
    """What the policy chooses at one step of G chains, and what the factual branch would have written there."""
    views = policy.views(logits.view(len(seeds), len(names), -1), step, names)
    draws = [
        torch.tensor([keyed_uniform(seed, path, step) for seed in seeds], dtype=torch.float64, device=logits.device)
        for path in (loop.ROOT_PATH, TRUTH_PATH)
    ]
    chosen = choose(views.log_p_fused, views.certified, policy.sampling, draws[0]).token_ids  # (G,)
    truth = choose(views.log_p_factual, None, policy.sampling, draws[1]).token_ids  # (G,)
    families = [family.log_p for family in views.families]
    masked = [views.log_p_masked] if policy.mask.layout == "joint" else families  # F of (G, V)
    looked_up = [(views.log_p_masked, chosen), *((log_p, truth) for log_p in masked)]
    supports = [
        joint_support(views.log_p_fused.gather(-1, token[:, None]), log_p.gather(-1, token[:, None]))
        for log_p, token in looked_up
    ]  # F + 1 of (G, 1)
    # One transfer a step: float64 holds token ids and float32 values exactly.
    rows = torch.cat([chosen[:, None].double(), *(support.double() for support in supports)], dim=-1).tolist()
    return [_Draw(int(token), values) for token, *values in rows]


def chain_prompts(
    model: LanguageModel,
    examples: Sequence[Example],
    contexts: Sequence[int],
    policy: Policy,
    detector: SpanDetector,
) -> list[Prepared]:
    """Mask the prompts as the policy would."""
    return list(
        prepared(examples, contexts, lambda e: (plan(model, e.prompt, policy, e.spans, detector=detector).prompt, ()))
    )


PHASE = "chains"
"""Label of the recorded chains in a ledger."""


def record_chains(
    model: LanguageModel,
    examples: Sequence[Example],
    policy: FusedPolicy,
    max_new_tokens: int = 64,
    seed: int = 0,
    detector: SpanDetector | None = None,
    progress: Progress | None = None,
    ledger: Ledger | None = None,
    room: Room | None = None,
) -> Calibration:
    """Record what the deployed policy chooses on prompts: the baseline against which drift is measured.

    A calibration on rollouts has one already. Take prompts of the kind that will be audited, best those that the
    thresholds were not read off.

    Args:
        model: The model.
        examples: Prompts; references are not needed.
        policy: The policy with its calibration, with a joint or with factorized masks.
        max_new_tokens: Steps of a chain at most.
        seed: Seed of the draws.
        detector: Finds spans where an example has none; the default one if None.
        progress: Called after each batch.
        ledger: Keeps each chain; what it holds is not generated again.
        room: Where the batches' memory is taken from, if the device is shared.

    Raises:
        InvalidInputError: The policy has no calibration, or an example has an unusable prompt.
        CalibrationMismatch: The calibration belongs to another policy.
        PromptTooLongError: A prompt fills the model's context.
        LedgerMismatchError: The ledger belongs to other inputs.
    """
    if policy.calibration is None:
        raise InvalidInputError("The policy has no calibration; calibrate first, then record its chains.")
    detector, model = detector or default_detector(), model.dated()
    prompts = chain_prompts(model, examples, context_numbers(examples), policy, detector)
    if ledger is not None:
        settings = {"max_new_tokens": max_new_tokens, "seed": seed, "thresholds": _thresholds(policy.calibration)}
        ledger.bind(ledger_key(PHASE, [policy.fingerprint(model, detector.version)], examples, settings))
    done = counted(progress, len(prompts))
    chains = generate_chains(model, policy, prompts, max_new_tokens, seed, done, ledger=ledger, phase=PHASE, room=room)

    def recorded(part: Part) -> Part:
        record = part.chains or ChainRecord(part.reading, max_new_tokens)
        return replace(part, chains=replace(record, reading=part.reading, max_new_tokens=max_new_tokens))

    return replace(policy.calibration.each(recorded), chosen=chains.chosen)


def _thresholds(calibration: Calibration) -> dict[str, object]:
    """The thresholds in force, by family; JSON values."""
    return {
        name: [part.bin_width, part.max_position, *(entry.log_tau for entry in part.bins)]
        for name, part in calibration.parts
    }
