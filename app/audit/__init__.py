"""Audits: a prompt continued token by token, each token with its three readings and its certified set."""
