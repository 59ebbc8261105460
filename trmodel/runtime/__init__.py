"""Reserved: the executor that serves with the thresholds tuned here."""
