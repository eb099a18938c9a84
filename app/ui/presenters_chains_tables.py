"""The tables beside compared chains, as markup: a summary, and the settings that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from app.services.policy_words import info_of, parameters_line
from app.services.views.comparisons import ChainSummary, Comparison
from app.services.views.running import SENSITIVE
from app.ui.components.markup import table
from app.ui.presenters_fit import NAMES
from app.ui.presenters_format import count, plural, signed

NONE = "–"
SETTINGS = {
    **NAMES,
    "alpha": "alpha",
    "policy": "policy",
    "calibration_id": "calibration",
    "greedy": "greedy",
    "seed": "seed",
    "max_new_tokens": "steps at most",
    "proceed_uncertified": "proceed uncertified",
    "user_list_id": "word list",
    "mask_layout": "mask",
    "mask_hint": "hint of the mask",
    "group": "group",
    "parameters": "parameters of the method",
}
"""Settings as they are named on pages."""


def summary_table(comparison: Comparison, names: Sequence[str]) -> str:
    """Figures of each chain; a dash where there is nothing to count."""
    chains = comparison.chains
    differing = [NONE, *(count(pair.changed + pair.removed + pair.added) for pair in comparison.pairs)]
    body = [["Tokens written", *(count(len(chain.steps)) for chain in chains)]]
    body.append([f"Aligned steps that differ from {names[0]}", *differing])
    body += [[title, *(read(chain) for chain in chains)] for title, read in FIGURES]
    measured = [[title, *(read(chain) for chain in chains)] for title, read in MEASURED]
    body += [row for row in measured if any(text != NONE for text in row[1:])]
    rows = [[f'<th scope="row">{escape(row[0])}</th>', *(escape(text) for text in row[1:])] for row in body]
    head = [('<span class="vh">Figure</span>', ""), *((escape(name), "n") for name in names)]
    return table(head, rows, "sumtab", "Summary of the columns")


def _ratios(chain: ChainSummary) -> list[float]:
    return [step.diagnostics.log_ratio for step in chain.steps]


def _largest(chain: ChainSummary) -> str:
    return signed(max(_ratios(chain), key=abs)) if chain.steps else NONE


def _certified(chain: ChainSummary) -> str:
    return NONE if chain.certified is None else f"{count(chain.certified)} of {count(len(chain.steps))}"


def _optional(value: int | None) -> str:
    return NONE if value is None else count(value)


def _decimal(value: float | None, digits: int, factor: float = 1.0) -> str:
    return NONE if value is None else f"{factor * value:.{digits}f}"


def memory(size: int | None) -> str:
    """A number of bytes in a unit that suits it; a dash for none."""
    if not size:
        return NONE
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"


FIGURES: tuple[tuple[str, Callable[[ChainSummary], str]], ...] = (
    ("Mean sensitivity, size only", lambda chain: _decimal(chain.mean_log_ratio, 2)),
    ("Largest sensitivity", _largest),
    (f"Sensitive tokens, {SENSITIVE:.2f} or more",
     lambda chain: count(sum(abs(value) >= SENSITIVE for value in _ratios(chain)))),
    ("Favourites overruled", lambda chain: _optional(chain.overruled)),
    ("Certified tokens", _certified),
    ("Fallback steps", lambda chain: _optional(chain.fallbacks)),
    ("From vanilla, total variation", lambda chain: _decimal(chain.mean_tv_factual, 3)),
    ("From vanilla, KL in nats", lambda chain: _decimal(chain.mean_kl_factual, 3)),
    ("Time per token, ms", lambda chain: _decimal(chain.seconds_per_token, 1, 1000)),
    ("Keys and values, computed", lambda chain: memory(chain.key_value_bytes)),
)  # fmt: skip

MEASURED: tuple[tuple[str, Callable[[ChainSummary], str]], ...] = (
    ("Further models, their weights", lambda chain: memory(chain.footprint.further_bytes if chain.footprint else None)),
    ("Device memory, measured peak of all that ran", lambda chain: memory(chain.peak_bytes)),
)
"""Figures that stand only where some chain has them."""


def differences_table(comparison: Comparison, names: Sequence[str]) -> str:
    """The settings that the columns do not share; a sentence where they share all."""
    differing = dict.fromkeys(name for pair in comparison.pairs for name, _, _ in pair.differences)
    shown = {
        name: [_value(name, chain) for chain in comparison.chains] for name in differing if _matters(name, comparison)
    }
    if not shown:
        return '<p class="sub">The columns were decoded with the same prompt and settings.</p>'
    head = [("Setting", ""), *((escape(name), "") for name in names)]
    rows = [[f'<th scope="row">{escape(SETTINGS.get(name, name))}</th>', *map(escape, row)]
            for name, row in shown.items()]  # fmt: skip
    return table(head, rows, "plain differ", f"{plural(len(rows), 'setting')} that differ")


def _matters(name: str, comparison: Comparison) -> bool:
    """Whether a setting decides something in at least two of the columns or tells them apart."""
    infos = [info_of(chain.policy) for chain in comparison.chains]
    if name == "lam":
        return any(info.fuses for info in infos)
    if name == "alpha":
        return any(chain.calibration is not None for chain in comparison.chains)
    return True


def _value(name: str, chain: ChainSummary) -> str:
    info = info_of(chain.policy)
    if name == "policy":
        return info.name
    if name == "calibration_id":
        return chain.calibration.name if chain.calibration else "none"
    if (name == "lam" and not info.fuses) or (name == "alpha" and chain.calibration is None):
        return NONE
    if name == "prompt":
        return chain.prompt
    if name == "spans":
        return _text(tuple(chain.prompt[span.start : span.end] for span in chain.spans if span.masked))
    if name == "parameters":
        return parameters_line(chain.settings) or NONE
    return _text(getattr(chain.settings, name))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value) or "none"
    return "none" if value is None or value == "" else str(value)
