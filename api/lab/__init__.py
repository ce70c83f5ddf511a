"""Control experiments: formats x corrections x seeds over one base run, side by side, with a report."""
