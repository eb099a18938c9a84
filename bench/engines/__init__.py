"""Engines compared: do they give the same numbers, and what do they cost?"""
