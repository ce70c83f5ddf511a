"""Follow a running job by the logs that it writes anyway. Nothing is ever written to them, and nothing can be changed
in the job: it is observed only."""
