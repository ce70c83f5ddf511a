"""Who is told of what, and what of it was delivered."""
