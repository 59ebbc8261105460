"""The server's HTTP face: an OpenAI-compatible interface, health, metrics and thresholds."""
