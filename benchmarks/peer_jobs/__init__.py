"""The same job in other people's software; `benchmarks.peers` runs each in an environment of its own."""
