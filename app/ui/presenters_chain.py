"""What the audit page says of a chain as a whole: the sequence certificate, and the union bound beside it."""

from __future__ import annotations

import math
from typing import TypedDict

from app.services.views import AuditView, ChainCertificate
from app.ui.presenters_format import count, level, plural, threshold

FACTORIZED = (
    "With one mask for each family there is no certificate for the whole chain; each step is certified by itself, "
    "for every family."
)


class Part(TypedDict):
    """One of the two answers: ``t`` title, ``s`` state of its mark, ``b`` badge, ``says`` words, ``rows`` figures."""

    t: str
    s: str
    b: str
    says: str
    rows: list[tuple[str, str]]


class ChainPanel(TypedDict):
    """The panel: ``text`` the sentence, ``weakest`` the least supported step (0-based), ``parts`` the answers."""

    text: str
    weakest: int
    parts: list[Part]


def chain_panel(chain: ChainCertificate | None) -> ChainPanel | None:
    """The panel of a chain; None where there is no certificate for it."""
    if chain is None:
        return None
    return ChainPanel(text=chain.sentence, weakest=chain.weakest, parts=[_sequence(chain), _union(chain)])


def no_chain(view: AuditView) -> str:
    """Why a session has no certificate for whole chains although it has a calibration; empty where none is expected."""
    return FACTORIZED if view.calibration is not None and view.settings.mask_layout == "factorized" else ""


def _sequence(chain: ChainCertificate) -> Part:
    found, held = chain.sequence, level(1 - chain.sequence.alpha)
    state, label, says = {
        True: (
            "calibrated",
            "certified",
            f"No token is less supported than the threshold that all true tokens of a chain reach together with "
            f"probability {held}.",
        ),
        False: (
            "missed",
            "not certified",
            f"Step {chain.weakest + 1} is less supported than the threshold that all true tokens of a chain reach "
            f"together with probability {held}.",
        ),
        None: ("uninformative", "says nothing", chain.reason),
    }[chain.sequence_certified]
    return Part(
        t="As one chain",
        s=state,
        b=label,
        says=says,
        rows=[
            ("Weakest token", f"step {chain.weakest + 1}"),
            (
                "Its probability as typed" if chain.certified_in == "factual" else "Its joint support",
                _small(chain.log_support),
            ),
            ("Threshold τ for chains", _small(found.log_tau) if found.log_tau > -math.inf else "none"),
            ("Rests on", plural(found.contexts, "context")),
            ("Holds for", found.applies),
            ("Lengths", found.lengths.sentence),
        ],
    )


def _union(chain: ChainCertificate) -> Part:
    bound = chain.union
    state, label, says = {
        True: ("calibrated", "every step certified" if bound.level > 0 else "no bound", _bound_says(chain)),
        False: ("missed", "a step is not certified", "A token misses the threshold of its own step."),
        None: (
            "uninformative",
            "says nothing",
            "A step’s threshold is borrowed or lets every token pass, so the risks cannot be added up.",
        ),
    }[chain.union_certified]
    return Part(
        t="Step by step, added up",
        s=state if bound.level > 0 or state != "calibrated" else "uninformative",
        b=label,
        says=says,
        rows=[
            ("Risk of one step, α", level(bound.alpha)),
            ("Steps that are charged", count(bound.charged)),
            ("All true tokens pass with at least", level(bound.level) if bound.level > 0 else "0: no statement"),
            (f"For {level(1 - bound.alpha)} together, α of a step", threshold(bound.alpha_needed)),
            ("which needs", plural(bound.contexts_needed, "context")),
        ],
    )


def _bound_says(chain: ChainCertificate) -> str:
    risks, left = f"the risks of {plural(chain.union.charged, 'step')} add up", chain.union.level
    if left > 0:
        return (
            f"Each token is certified at its own step; {risks}, which leaves at least {level(left)} for all together."
        )
    return f"Each token is certified at its own step, but {risks} to 1 or more, so nothing can be said of all together."


def _small(log_value: float) -> str:
    """A probability that may be tiny, with two significant digits."""
    value = math.exp(log_value)
    return threshold(value) if value >= 1e-4 else "0" if value == 0 else f"{value:.1e}".replace("e-0", "e-")
