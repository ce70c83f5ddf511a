"""Verifiable tasks: prompts, and rewards of the responses."""
