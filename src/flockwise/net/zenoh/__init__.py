"""The messages of a host on zenoh: one session for all its agents."""
