"""`flockwise network`: a network of real agents, from a configuration to processes on this machine."""

from __future__ import annotations

import json as json_text
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from flockwise.cli.console import RESULTS, print_table, say, step
from flockwise.errors import ConfigError

network = typer.Typer(no_args_is_help=True, help="Make, run and watch a network of real agents.")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The network's folder.")]


@network.command()
def init(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="See docs/network.md.")],
    out: Annotated[Path, typer.Option(help="A new folder for the authority and all agents' folders.")],
) -> None:
    """Make a folder per agent: identity, data, and neighbors with addresses and weights."""
    from flockwise.cli.members import members_of
    from flockwise.config import Config, build
    from flockwise.net.setup import create_network

    settings = Config.read(config)
    with step("preparing data, graph and objective"):
        experiment = build(settings)
    members, shared = members_of(experiment)
    with step(f"making keys and folders for {len(members)} agents"):
        create_network(
            out,
            settings.network.name,
            members,
            experiment.problem.neighbors,
            shared,
            dimension=experiment.problem.dimension,
            tick_rate=settings.network.tick_rate,
        )
    for what in shared.not_covered:
        say(f"Not covered by any guarantee: {what}")
    say(f"Keep {out / 'authority'} away from the network: whoever has it can admit anybody.")
    say(f"Run all agents on this machine with: flockwise network up {out}")


@network.command()
def up(
    folder: Folder,
    processes: Annotated[
        int | None,
        typer.Option(min=0, help="Gateways to spread the agents over; 0 is one process per agent."),
    ] = None,
) -> None:
    """Run all agents on this machine, in the foreground, until Ctrl-C or `flockwise network down DIR`."""
    from flockwise.net.setup import host_together
    from flockwise.net.supervisor import Supervisor

    with Supervisor(folder) as supervisor:
        hosts = host_together(folder, _cores() if processes is None else processes)
        with step(f"starting {len(hosts)} processes"):
            supervisor.start(hosts)
            supervisor.wait_until_up()
        say(f"Up. Watch it with: flockwise network status {folder}")
        say(f"Stop it with Ctrl-C, or with: flockwise network down {folder}")
        supervisor.watch(say)
    say("Down. Everything is on disk; `up` goes on from there.")


@network.command()
def down(folder: Folder) -> None:
    """Stop the agents that `flockwise network up DIR` runs, and wait until they have."""
    from flockwise.net.supervisor import stop_running

    with step("stopping"):
        stop_running(folder)


@network.command()
def status(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="Print it for programs.")] = False,
) -> None:
    """Show how every agent is doing, and what they guarantee; nothing is computed from anybody's data."""
    from flockwise.net.overview import agents_in, promise_in, refused_connections

    agents, refused, promise = agents_in(folder), refused_connections(folder), promise_in(folder)
    if as_json:
        typer.echo(json_text.dumps({"agents": agents, "connections": refused, "guarantee": promise}))
    else:
        _show(agents)
        if any(refused.values()):
            RESULTS.print(
                f"connections refused: {refused['refused']:,}, of strangers: {refused['strangers']:,}"
            )
        RESULTS.print(Text(f"\n{promise}", style="dim"), soft_wrap=True)


@network.command()
def enroll(
    folder: Folder,
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="What `flockwise agent request` made.")],
    address: Annotated[str, typer.Option(help="Where the new agent is reached, as host:port.")],
    neighbor: Annotated[list[str], typer.Option(help="NAME=WEIGHT, once for each of its neighbors.")],
    reply: Annotated[Path, typer.Option(help="A new folder to send back to the device.")],
) -> None:
    """Admit one more agent. Its neighbors get a new roster; those that run take it over at once."""
    from flockwise.net.joining import answer_request

    name = answer_request(folder, request.read_bytes(), address, dict(map(_edge, neighbor)), reply)
    say(f"Agent {name} is in the network. Send {reply} back to its device, and there:")
    say(f"    flockwise agent accept FOLDER {reply.name} --data SAMPLES.npz")


def _edge(text: str) -> tuple[str, float]:
    name, equals, weight = text.rpartition("=")
    try:
        return name, float(weight if equals else "")
    except ValueError:
        raise ConfigError(f"--neighbor {text}: write NAME=WEIGHT, as in alice=0.5") from None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _show(agents: list[dict[str, Any]]) -> None:
    headings = ["agent", "state", "updates", "releases", "ε spent", "neighbors up", "dropped", "last release"]
    if any(agent["rounds"] is not None for agent in agents):
        headings.append("rounds")
    rows = [_cells(agent)[: len(headings)] for agent in agents]
    print_table(headings, rows, words=("agent", "state"))


def _cells(agent: dict[str, Any]) -> tuple[str, ...]:
    spent, total = agent["epsilon_spent"], agent["epsilon_total"]
    age = agent["last_release_age_s"]
    return (
        agent["name"],
        agent["state"],
        f"{agent['updates']:,}",
        f"{agent['releases']:,}",
        "not private" if total is None else f"{spent or 0:.3g} of {total:.3g}",
        str(agent["neighbors_up"]),
        f"{sum(agent['dropped'].values()):,}",
        "–" if age is None else f"{age:.0f} s ago" if age < 120 else f"{age / 60:.0f} min ago",
        _rounds(agent),
    )


def _rounds(agent: dict[str, Any]) -> str:
    """How far its conversation has come."""
    count = "–" if agent["rounds"] is None else f"{agent['rounds']:,}"
    return f"{count} ✓" if agent["is_over"] else count
