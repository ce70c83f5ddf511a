"""The demo: real runs that fail by themselves, and the same runs with the agent on duty."""
