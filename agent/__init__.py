"""The functional core: signals, baselines, detectors, incidents and policy, folded over a run's ledger by `advance`."""
