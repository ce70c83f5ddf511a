"""Who may ask for what, and the audit trail of all that was asked for."""
