"""Measuring a running server: load, figures, and what the model predicts for the same."""
