"""Roll-ups of summaries, and how far a ledger goes back."""
