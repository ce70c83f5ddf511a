"""What `trimtab.trainer.objective` is made of: surrogates, aggregations and the divergence from a reference."""
