"""The reference FP8/NVFP4 GRPO trainer: a real run, small enough to watch fail and recover on two cores."""
