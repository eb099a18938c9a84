"""Directions for activation steering: labelled pairs, fitting, and what steering along them does to a model."""
