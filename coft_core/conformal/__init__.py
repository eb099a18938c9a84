"""Split-conformal calibration with numpy alone: thresholds, bins, families, sequences, shift and drift."""
