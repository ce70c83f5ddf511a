"""Ways from a training process to an agent, by the scheme of a URL."""
