"""Calibration from end to end: the one function that knows every context source."""

from coft_core.calibrating.chains import Chains, generate_chains
from coft_core.calibrating.run import calibrate, record_chains

__all__ = ["Chains", "calibrate", "generate_chains", "record_chains"]
