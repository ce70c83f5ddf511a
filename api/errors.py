"""What is the user's to mend."""

from __future__ import annotations


class UserError(Exception):
    """A mistake, or a state of things, that the user mends: the command line tells the message in one line."""
