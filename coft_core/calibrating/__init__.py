"""Calibration from end to end: the functions that know every context source."""

from coft_core.calibrating.baseline import record_chains
from coft_core.calibrating.chains import Chains, generate_chains
from coft_core.calibrating.run import calibrate, calibrate_factorized

__all__ = ["Chains", "calibrate", "calibrate_factorized", "generate_chains", "record_chains"]
