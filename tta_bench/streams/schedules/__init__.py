"""Which domains come, and in which order, before labels are read."""
