"""One file a schema change, in the order of their names."""
