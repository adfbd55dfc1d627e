"""`flockwise agent`: one agent, or one gateway, of a real network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flockwise.cli.console import say
from flockwise.cli.process import run_agent
from flockwise.errors import NetworkError
from flockwise.files import write_whole

AgentPath = Annotated[Path, typer.Argument(metavar="FOLDER", help="The agent's folder.")]

agent = typer.Typer(no_args_is_help=True, help="Run an agent of a real network on this machine.")


@agent.command()
def run(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="An agent's folder, or a gateway's (DIR/hosts/NAME).")
    ],
    until_input_ends: Annotated[
        bool, typer.Option("--until-input-ends", help="Stop when the standard input ends.", hidden=True)
    ] = False,
) -> None:
    """Run it in the foreground until Ctrl-C or SIGTERM; it goes on where it was when it last stopped."""
    run_agent(folder, until_input_ends=until_input_ends)


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
    from flockwise.deploy.joining import make_request

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
    data: Annotated[
        Path | None,
        typer.Option(help="The samples of a new agent: an .npz file with features and targets."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Total ε, in a private network.")] = None,
    delta: Annotated[float | None, typer.Option(help="Total δ, in a private network.")] = None,
    updates: Annotated[
        int | None,
        typer.Option(min=1, help="How many releases the budget is for; by default the network's updates."),
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(
            help="What one sample's gradient is clipped to; by default a quarter of the largest gradient "
            "that the network's public bounds allow."
        ),
    ] = None,
) -> None:
    """Put the authority's reply into the agent's folder; then `flockwise agent run FOLDER` runs it.

    An agent that has joined takes a newer roster and certificate over: neither samples nor budget are given.
    """
    from flockwise.deploy.joining import ACCEPTED_FOLDER, accept_reply, finish_accepting
    from flockwise.deploy.updating import is_agent, take_over
    from flockwise.privacy.budget import Budget

    if (folder / ACCEPTED_FOLDER).is_dir():
        finish_accepting(folder)
        say(f"Done, after an interruption. Run it with: flockwise agent run {folder}")
        return
    if is_agent(folder):
        if (data, epsilon, delta, updates, clip) != (None,) * 5:
            raise NetworkError(
                f"{folder}: this agent has joined; its samples and its budget stay: leave them out"
            )
        take_over(folder, reply)
        say("Done. An agent that runs takes it over within seconds.")
        return
    if data is None:
        raise NetworkError("--data: missing; a new agent needs its samples")
    if (epsilon is None) != (delta is None):
        raise NetworkError("give both --epsilon and --delta, or neither")
    budget = None if epsilon is None or delta is None else Budget(epsilon, delta)
    accept_reply(folder, reply, data, budget, updates, clip)
    say(f"Ready. Run it with: flockwise agent run {folder}")


@agent.command()
def rotate(folder: AgentPath) -> None:
    """Make new keys for an agent that has joined, and a request for the network's authority to sign.

    Stop the agent first. It starts again once the authority's reply is accepted.
    """
    from flockwise.deploy.rotation import ask_for_new_keys

    asked, file = ask_for_new_keys(folder), folder / "request.json"
    write_whole(file, lambda part: part.write_bytes(asked))
    say(f"Send {file} to the people who run the network; the private keys stay in {folder}.")


@agent.command()
def predict(
    folder: AgentPath,
    features: Annotated[Path, typer.Argument(metavar="FEATURES", help="Rows: .csv, .parquet or .npz.")],
    out: Annotated[Path, typer.Option(help="A .csv file for the predictions.")],
) -> None:
    """Predict rows by the agent's own model, whether or not it runs. Columns go by name, arrays in order.

    The predictions are for the owner: they show what the agent's samples are like.
    """
    from flockwise.deploy.folder import AgentFolder
    from flockwise.runtime.reading import predict_rows, write_predictions

    predicted = predict_rows(AgentFolder.read(folder), features)
    write_predictions(out, predicted)
    say(f"{out}: {len(predicted):,} predictions. They are for you alone: do not publish them.")


@agent.command()
def export(
    folder: AgentPath,
    out: Annotated[Path, typer.Option(help="A .parquet file for the model.")],
) -> None:
    """Write the agent's own model to a file, whether or not it runs.

    The file says that the model must not be shown, and private runs refuse to start from it.
    """
    from flockwise.deploy.folder import AgentFolder
    from flockwise.runtime.reading import own_model_table, write_model

    write_model(out, own_model_table(AgentFolder.read(folder)))
    say(f"{out}: the own model, made of your samples without noise. Do not show it to anybody.")


@agent.command()
def vouch(folder: AgentPath) -> None:
    """Say that the agent's ledger is the newest there is: write the freshness file that agent.toml names.

    Give it when you first name such a file, or when it was lost. If the ledger is an old copy after all, the
    agent spends the same budget twice.
    """
    from flockwise.deploy.folder import AgentFolder
    from flockwise.runtime.newest import vouch as write_freshness

    file = write_freshness(AgentFolder.read(folder))
    say(f"{file}: written. Keep it on another disk than the agent's folder.")


@agent.command("move-out")
def move_out(
    folder: AgentPath,
    to: Annotated[Path, typer.Option(help="A new file for all of the agent, its keys and samples among it.")],
) -> None:
    """Pack a stopped agent for another device. Its folder here never releases again.

    If this was interrupted, give the command again.
    """
    from flockwise.runtime.moving import move_out as pack

    pack(folder, to)
    say(f"{to}: holds keys, samples and budget; carry it as you would carry a password.")
    say(f"There: flockwise agent move-in {to.name} FOLDER")


@agent.command("move-in")
def move_in(
    bundle: Annotated[Path, typer.Argument(metavar="FILE", help="The file that move-out wrote.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder on this device.")],
) -> None:
    """Unpack an agent on its new device, and remove the file.

    A second copy of the agent would spend the same budget twice.
    """
    from flockwise.runtime.moving import move_in as unpack

    name = unpack(bundle, folder).name
    say(f"Agent {name} has moved in, and {bundle} is gone. Destroy any copy of it.")
    say("If it has another address now, have it changed: flockwise network move DIR NAME HOST:PORT")
    say(f"Run it with: flockwise agent run {folder}")
