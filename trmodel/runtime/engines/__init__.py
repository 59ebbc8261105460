"""Engines: what computes a step."""
