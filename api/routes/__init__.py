"""One file a concept; each has a `router`."""
