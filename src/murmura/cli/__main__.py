"""`python -m murmura.cli`, for where the command itself is not installed."""

from murmura.cli.app import main

main()
