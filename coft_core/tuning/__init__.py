"""Symmetric tuning: every method is swept alike and judged at its best point (COFT, appendix on symmetric tuning)."""

from coft_core.tuning.items import TuningItem, check_items
from coft_core.tuning.measure import Measured, measure, measure_many
from coft_core.tuning.sweep import Point, Sweep, Variant, best_point, sweep, variants_of

__all__ = [
    "Measured",
    "Point",
    "Sweep",
    "TuningItem",
    "Variant",
    "best_point",
    "check_items",
    "measure",
    "measure_many",
    "sweep",
    "variants_of",
]
