"""Long work: jobs, their runs, their workers, and what pages show of them."""
