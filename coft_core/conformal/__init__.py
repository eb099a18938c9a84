"""Split-conformal calibration with numpy alone: thresholds, bins, parts, sequences, shift and drift."""
