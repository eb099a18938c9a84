"""Results of evaluations, batches and checks as one record, and a module for each format of other programs."""
