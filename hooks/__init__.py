"""Everything that lives inside a training process."""
