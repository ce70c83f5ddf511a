"""Telling people: what, when, in which words, and getting it there."""
