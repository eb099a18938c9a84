"""Stored audits read again at another lambda or alpha."""
