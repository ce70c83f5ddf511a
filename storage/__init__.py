"""The database: an append-only ledger per job, and what was folded from it."""
