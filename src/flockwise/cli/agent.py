"""`flockwise agent`: one agent, or one gateway, of a real network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flockwise.cli.console import say
from flockwise.errors import NetworkError
from flockwise.files import write_whole

agent = typer.Typer(no_args_is_help=True, help="Run an agent of a real network on this machine.")


@agent.command()
def run(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="An agent's folder, or a gateway's (DIR/hosts/NAME).")
    ],
) -> None:
    """Run it in the foreground until Ctrl-C or SIGTERM; it goes on where it was when it last stopped."""
    from flockwise.net.run import run_folder

    run_folder(folder)


@agent.command()
def request(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The new agent's folder on this device.")],
    network: Annotated[str, typer.Option(help="The network to join.")],
    name: Annotated[str, typer.Option(help="The new agent's name.")],
    address: Annotated[str, typer.Option(help="Where neighbors reach this device, as host:port.")],
) -> None:
    """Make a new agent's keys on this device, and a request for the network's authority to sign.

    The private keys stay in FOLDER. Send FOLDER/request.json to the people who run the network.
    """
    from flockwise.net.joining import make_request

    file = folder / "request.json"
    if file.exists():
        raise NetworkError(f"{file}: there is a request already; send it, or remove the folder")
    asked = make_request(folder, network, name, address)
    write_whole(file, lambda part: part.write_bytes(asked))
    say(f"Send {file} to the people who run the network; the private keys stay in {folder}.")


@agent.command()
def accept(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that made the request.")],
    reply: Annotated[Path, typer.Argument(metavar="REPLY", help="The folder that the authority sent back.")],
    data: Annotated[Path, typer.Option(help="The agent's samples: an .npz file with features and targets.")],
    epsilon: Annotated[float | None, typer.Option(help="Total ε, in a private network.")] = None,
    delta: Annotated[float | None, typer.Option(help="Total δ, in a private network.")] = None,
    updates: Annotated[int | None, typer.Option(min=1, help="How many releases the budget is for.")] = None,
    clip: Annotated[float | None, typer.Option(help="What one sample's gradient is clipped to.")] = None,
) -> None:
    """Put the authority's reply into the agent's folder; then `flockwise agent run FOLDER` runs it."""
    from flockwise.net.joining import accept_reply
    from flockwise.privacy.budget import Budget

    if (epsilon is None) != (delta is None):
        raise NetworkError("give both --epsilon and --delta, or neither")
    budget = None if epsilon is None or delta is None else Budget(epsilon, delta)
    accept_reply(folder, reply, data, budget, updates, clip)
    say(f"Ready. Run it with: flockwise agent run {folder}")
