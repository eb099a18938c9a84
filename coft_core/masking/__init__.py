"""Finding, merging and masking sensitive spans."""
