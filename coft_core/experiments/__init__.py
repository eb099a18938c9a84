"""What the paper's tables are made of beyond single figures: averages, fronts, the choice of a value, and speed."""
