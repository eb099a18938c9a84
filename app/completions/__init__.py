"""Completions over HTTP in the shape of OpenAI's interface, for programs that speak it."""
