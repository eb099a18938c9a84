"""A story that is told by a model of the tests, and a store with audits and calibrations of it."""
