"""The paper's Examples A and B, from their printed tables.

The tables show the six likeliest tokens with two digits. The fused column is therefore not an exact geometric
mixture of the other two; certification uses the printed fused and masked columns, as the paper does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch

from coft_core.policies.certify import certified_set, joint_support
from coft_core.policies.fusion import fuse_logits
from coft_core.policies.sampling import choose
from coft_core.types import Sampling

TAU, LAM = 0.06, 0.6


@dataclass(frozen=True)
class Table:
    """One printed table: per token the factual, masked and fused probability."""

    rows: dict[str, tuple[float, float, float]]
    certified: tuple[str, ...]
    greedy: str
    vanilla: str

    def log_column(self, column):
        # One logarithm for the table and for tau: a token printed as 0.06 must meet a threshold of 0.06.
        return torch.tensor([math.log(row[column]) for row in self.rows.values()], dtype=torch.float64)

    @property
    def tokens(self):
        return tuple(self.rows)

    @property
    def members(self):
        return certified_set(joint_support(self.log_column(2), self.log_column(1)), math.log(TAU))


AFTER_REPORTS = Table(
    rows={
        ".": (0.41, 0.52, 0.47),
        " and": (0.23, 0.16, 0.19),
        " before": (0.08, 0.05, 0.06),
        "<eos>": (0.06, 0.09, 0.08),
        ",": (0.05, 0.07, 0.06),
        " because": (0.03, 0.02, 0.02),
    },
    certified=(".", " and", "<eos>", ","),
    greedy=".",
    vanilla=".",
)
AFTER_AND = Table(
    rows={
        " he": (0.22, 0.09, 0.13),
        " they": (0.18, 0.25, 0.22),
        " the": (0.12, 0.13, 0.12),
        " she": (0.07, 0.06, 0.06),
        " then": (0.05, 0.06, 0.06),
        " nobody": (0.02, 0.03, 0.02),
    },
    # The text: "they", "the" and "then" are certified, "he" passes, "she" sits at the threshold.
    certified=(" he", " they", " the", " she", " then"),
    greedy=" they",
    vanilla=" he",
)
TICKET = Table(
    rows={
        "the Latino driver": (0.38, 0.05, 0.12),
        "the driver": (0.22, 0.34, 0.29),
        "no one": (0.10, 0.15, 0.13),
        "the officer": (0.07, 0.08, 0.07),
        "the other car": (0.05, 0.07, 0.06),
        "the pedestrian": (0.04, 0.05, 0.04),
    },
    certified=("the driver", "no one", "the officer", "the other car"),
    greedy="the driver",
    vanilla="the Latino driver",
)
TABLES = pytest.mark.parametrize("table", [AFTER_REPORTS, AFTER_AND, TICKET], ids=["reports", "and", "ticket"])


@TABLES
def test_certified_set_is_the_papers(table):
    found = tuple(token for token, inside in zip(table.tokens, table.members.tolist(), strict=True) if inside)
    assert found == table.certified


@TABLES
def test_greedy_choice_is_the_papers(table):
    choice = choose(
        table.log_column(2)[None], table.members[None], Sampling(), torch.zeros(1, dtype=torch.float64), greedy=True
    )
    assert table.tokens[choice.token_ids.item()] == table.greedy
    assert not choice.fallback.item()
    assert table.tokens[table.log_column(0).argmax().item()] == table.vanilla


@TABLES
def test_sampling_draws_every_certified_token_and_no_other(table):
    draws = 4000
    uniform = torch.rand(draws, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    choice = choose(
        table.log_column(2).expand(draws, -1), table.members.expand(draws, -1), Sampling(top_p=1.0), uniform
    )
    assert {table.tokens[index] for index in choice.token_ids.tolist()} == set(table.certified)


@TABLES
def test_printed_fused_column_is_the_fusion_of_the_others_to_its_digits(table):
    fused = fuse_logits(table.log_column(0), table.log_column(1), LAM).exp()
    assert fused.tolist() == pytest.approx([row[2] for row in table.rows.values()], abs=0.01)


def test_marked_answers_and_tokens_just_below_the_threshold_are_refused():
    index = TICKET.tokens.index("the Latino driver")
    assert TICKET.log_column(2)[index] >= math.log(TAU)
    assert TICKET.log_column(1)[index] < math.log(TAU)
    # " before" has 0.06 fused and 0.05 masked.
    assert " before" not in AFTER_REPORTS.certified
    assert not AFTER_REPORTS.members[AFTER_REPORTS.tokens.index(" before")]
