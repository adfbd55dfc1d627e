"""The Typer program: its commands, --version, and how errors end it."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import flockwise
from flockwise.cli.console import say
from flockwise.cli.refusals import refusals

# Each command is `flockwise.cli.NAME.NAME`. The words beside it are how its own help begins.
COMMANDS = {
    "demo": "See agents learn alone, together, and together in private: the paper's synthetic task.",
    "simulate": "Run a method on your data.",
    "reproduce": "Run the paper's experiments and put each published value beside ours.",
    "plan": "See what a budget buys: the least noise under every accountant, or the best method (--problem).",
    "audit": "Attack every mechanism and compare.",
    "ledger": "Look into the ledgers of real agents.",
    "network": "Make, run and watch a network of real agents.",
    "agent": "Run an agent of a real network on this machine.",
    "bench": "Measure the engine, the network and the estimators on this machine.",
}


class Commands(TyperGroup):
    """Imports a command when it runs: help needs no compiler, and no command needs those of the others."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else found, rest


def load_command(name: str) -> Any:
    """The command itself, in the place of its line of help."""
    found = getattr(importlib.import_module(f"flockwise.cli.{name}"), name)
    compiler: Any = sys.modules.get("flockwise.code_cache")
    if compiler is not None:
        compiler.on_first_compilation = lambda: say("compiling for this machine, once: up to half a minute …")
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        found = alone
    command = typer.main.get_command(found)
    command.name = name
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
        typer.echo(f"flockwise {flockwise.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say which version it is."),
    ] = False,
) -> None:
    """Options of every command. --version has acted by the time this is called."""


def main() -> None:
    """Run the command line. What Flockwise refuses ends it with a line and code 1, not with a traceback."""
    with refusals():
        app()
