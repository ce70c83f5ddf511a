"""Scores of detectors on labelled runs: recorded ones, and runs that are drawn."""
