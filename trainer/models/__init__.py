"""Language models that the trainer trains and the sampler samples from."""
