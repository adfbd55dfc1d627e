"""Real peers: the same agents on real machines."""
