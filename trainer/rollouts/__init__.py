"""Rollouts: who samples, with which weights, and when."""
