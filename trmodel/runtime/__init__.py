"""The executor: a server with token-level routing that runs by the thresholds tuned here."""
