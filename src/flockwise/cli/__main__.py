"""`python -m flockwise.cli`, for where the command itself is not installed."""

from flockwise.cli import main

main()
