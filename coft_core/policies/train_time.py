"""The train-time references: models whose weights were changed, decoded as they are.

COFT, appendix on train-time methods: counterfactual data augmentation, and a language-model head trained against an
adversary. ``python -m bench.train_time`` makes the checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coft_core.errors import InvalidInputError
from coft_core.policies.base import parameter
from coft_core.policies.baseline import BaselinePolicy

CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class CheckpointPolicy(BaselinePolicy):
    """Decode a checkpoint that was trained from the audited model, or from another one with its tokenizer.

    The factual and the masked view are the checkpoint's own; the audited model itself does not run.
    """

    checkpoint: str = parameter("", "model", "Checkpoint", "Id or folder of the trained model.", optional=True)

    audited: ClassVar[str] = CHECKPOINT
    # In `python -m bench.train_time`.
    training: ClassVar[str]

    def __post_init__(self) -> None:
        """Validate; there is nothing to decode without a checkpoint."""
        super().__post_init__()
        if not self.checkpoint:
            raise InvalidInputError(
                "Checkpoint is missing; give the id or the folder of a model, or make one with "
                f"`python -m bench.train_time {self.training} --model MODEL --out DIR`."
            )

    @property
    def models(self) -> dict[str, str]:
        """The checkpoint."""
        return {CHECKPOINT: self.checkpoint}


@dataclass(frozen=True)
class CdaPolicy(CheckpointPolicy):
    """A model fine-tuned on each text as it is and with attributes swapped (Zmigrod et al., ACL 2019)."""

    name: ClassVar[str] = "cda"
    title: ClassVar[str] = "Augmented training"
    training: ClassVar[str] = "cda"


@dataclass(frozen=True)
class AdversarialHeadPolicy(CheckpointPolicy):
    """A model whose head was trained against an adversary behind a gradient reversal (Ganin et al., JMLR 2016)."""

    name: ClassVar[str] = "adv_lm_head"
    title: ClassVar[str] = "Adversarial head"
    training: ClassVar[str] = "adversarial"
