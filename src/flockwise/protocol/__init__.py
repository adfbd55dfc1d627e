"""Conversations between neighbors: no samples, no graph, no input or output."""
