"""The Typer program: its commands, --version, and how errors end it."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flockwise.cli.console import say_error, version
from flockwise.errors import FlockwiseError

COMMANDS = ("demo", "simulate", "reproduce", "plan", "audit", "ledger", "network", "agent", "bench")


class Commands(TyperGroup):
    """Each command is `flockwise.cli.NAME.NAME`, imported when it is asked for: `plan` needs no compiler."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        found = getattr(importlib.import_module(f"flockwise.cli.{cmd_name}"), cmd_name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(cmd_name)(found)
            found = alone
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="Many agents, each with a little private data, learn a model each from the neighbors they resemble.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flockwise {version()}")
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
    """Run the command line; what Flockwise refuses ends it with a line and code 1, not with a traceback."""
    try:
        app()
    except FlockwiseError as error:
        say_error(str(error))
    except OSError as error:
        say_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    else:
        return
    sys.exit(1)
