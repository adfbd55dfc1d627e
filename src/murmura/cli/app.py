"""The Typer program: its commands, --version, and how errors end it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from murmura.cli.bench import bench
from murmura.cli.console import say_error, version
from murmura.cli.demo import demo
from murmura.cli.simulate import simulate
from murmura.errors import MurmuraError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="Many agents, each with a little private data, learn a model each from the neighbors they resemble.",
)
app.command()(demo)
app.command()(simulate)
app.add_typer(bench, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"murmura {version()}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say which version it is."),
    ] = False,
) -> None:
    """What holds for every command; --version has acted by the time this is called."""


def main() -> None:
    """Run the command line; what Murmura refuses ends it with a line and code 1, not with a traceback."""
    try:
        app()
    except MurmuraError as error:
        say_error(str(error))
    except OSError as error:
        say_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    else:
        return
    sys.exit(1)
