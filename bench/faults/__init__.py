"""What faults of the machine cost: kills at random moments, full disks, damaged files, and memory that runs out."""
