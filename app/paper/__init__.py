"""The paper as one command: its tables and figures in order, beside its own numbers, and its claims with verdicts."""

from app.shared.wiring import Feature

FEATURE = Feature(__name__, {"paper": "make every table and figure of the paper, and check its claims"})
