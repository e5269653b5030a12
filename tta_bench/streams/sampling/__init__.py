"""Which images of a domain come, and in which order: functions of labels and a generator."""
