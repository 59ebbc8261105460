"""Reserved: simulation of the same system, to check the exact chain and to go beyond its size."""
