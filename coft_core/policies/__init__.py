"""Decoding policies, one file a method."""
