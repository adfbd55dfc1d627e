"""`flockwise network`: a network of real agents, from a configuration to processes on this machine."""

from __future__ import annotations

import json as json_text
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flockwise.cli.console import RESULTS, print_whole, say, step, table_of
from flockwise.errors import ConfigError

network = typer.Typer(no_args_is_help=True, help="Make, run and watch a network of real agents.")

SECONDS_BETWEEN_LOOKS: Final = 1.0

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The network's folder.")]


@network.command()
def init(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="See docs/network.md.")],
    out: Annotated[Path, typer.Option(help="A new folder for the authority and all agents' folders.")],
) -> None:
    """Make a folder per agent: identity, data, and neighbors with addresses and weights."""
    from flockwise.cli.members import members_of
    from flockwise.config import Config, build
    from flockwise.deploy.setup import create_network

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
    from flockwise.deploy.setup import host_together
    from flockwise.runtime.supervisor import Supervisor

    with Supervisor(folder) as supervisor:
        hosts = host_together(folder, _cores() if processes is None else processes)
        with step(f"starting {len(hosts)} processes"):
            supervisor.start(hosts)
            failed = supervisor.wait_until_up()
        for host, why in failed.items():
            say(f"{host} is not up, and is tried again: {why}")
        but_for = f", but for {len(failed)} of {len(hosts)}" if failed else ""
        say(f"Up{but_for}. Watch it with: flockwise network status {folder}")
        say(f"Stop it with Ctrl-C, or with: flockwise network down {folder}")
        supervisor.watch(say)
    say("Down. Everything is on disk; `up` goes on from there.")


@network.command()
def down(folder: Folder) -> None:
    """Stop the agents that `flockwise network up DIR` runs, and wait until they have."""
    from flockwise.runtime.supervisor import stop_running

    with step("stopping"):
        stop_running(folder)


@network.command()
def status(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="Print it for programs.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew every second, until Ctrl-C.")] = False,
) -> None:
    """Show how every agent is doing, and what they guarantee; nothing is computed from anybody's data."""
    from flockwise.runtime.overview import (
        agents_in,
        crowded_doors,
        expiring,
        promise_in,
        refused_connections,
    )

    if as_json:
        shown = {
            "agents": agents_in(folder),
            "connections": refused_connections(folder),
            "crowded_doors": crowded_doors(folder),
            "certificates_end_in_s": {host: left.total_seconds() for host, left in expiring(folder).items()},
            "guarantee": promise_in(folder),
        }
        typer.echo(json_text.dumps(shown))
    elif watch:
        _watch(folder)
    else:
        print_whole(_overview(folder))
        RESULTS.print(Text(f"\n{promise_in(folder)}", style="dim"), soft_wrap=True)


@network.command()
def enroll(
    folder: Folder,
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="What `flockwise agent request` made.")],
    address: Annotated[str, typer.Option(help="Where the new agent is reached, as host:port.")],
    neighbor: Annotated[list[str], typer.Option(help="NAME=WEIGHT, once for each of its neighbors.")],
    reply: Annotated[Path, typer.Option(help="A new folder to send back to the device.")],
) -> None:
    """Admit one more agent. Its neighbors get a new roster; those that run take it over at once."""
    from flockwise.deploy.joining import answer_request

    name = answer_request(folder, request.read_bytes(), address, dict(map(_edge, neighbor)), reply)
    say(f"Agent {name} is in the network. Send {reply} back to its device, and there:")
    say(f"    flockwise agent accept FOLDER {reply.name} --data SAMPLES.npz")


@network.command()
def remove(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The agent to throw out.")],
) -> None:
    """Throw an agent out, for good. Its neighbors refuse it as soon as they have their new rosters."""
    from flockwise.deploy.changes import remove_agent
    from flockwise.deploy.network_plan import NetworkPlan

    before = NetworkPlan.read(folder).lonely
    after = remove_agent(folder, name).lonely
    say(f"Agent {name} is out of the network. Neighbors on this machine take that over within seconds.")
    for alone in sorted(after - before):
        say(f"Agent {alone} has no neighbor any more: it learns alone, and with a budget it sends nothing.")
    _say_what_to_carry(folder)


@network.command()
def renew(
    folder: Folder,
    within: Annotated[
        float, typer.Option(metavar="DAYS", min=0, help="Renew what ends within so many days, or has ended.")
    ] = 60.0,
) -> None:
    """Renew the certificates of hosts. Those that run take theirs over without a restart."""
    from flockwise.deploy.renewal import renew as renew_certificates

    renewed = renew_certificates(folder, timedelta(days=within))
    for host, end in renewed.items():
        say(f"{host}: its certificate holds until {end:%Y-%m-%d}")
    if not renewed:
        say(f"No certificate ends within {within:g} days; --within DAYS looks further ahead.")
    else:
        _say_what_to_carry(folder)


@network.command()
def rotate(
    folder: Folder,
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="What `flockwise agent rotate` made.")],
) -> None:
    """Give an agent new keys. Its neighbors take nothing signed with the old one from then on."""
    from flockwise.deploy.rotation import answer_rotation

    name = answer_rotation(folder, request.read_bytes())
    say(f"Agent {name} has new keys.")
    _say_what_to_carry(folder)


@network.command()
def move(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The agent that is reached elsewhere.")],
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Its new address, as host:port.")],
) -> None:
    """Change an agent's address. Its neighbors dial the new one as soon as they have their new rosters."""
    from flockwise.deploy.changes import move_agent

    plan = move_agent(folder, name, address)
    host = plan.places[plan.number(name)].host
    if host == name:
        say(f"Agent {name} is at {address}. Neighbors on this machine take that over within seconds.")
    else:
        say(f"Agent {name} is at {address} once it runs by itself; now {host} runs it, at its own address.")
    _say_what_to_carry(folder)


@network.command()
def change(
    folder: Folder,
    at: Annotated[datetime, typer.Option(help="When it begins, by this machine's clock.")],
    tradeoff: Annotated[float | None, typer.Option(help="The new trade-off.")] = None,
    edge: Annotated[
        list[str] | None, typer.Option(help="NAME/NAME=WEIGHT, once for each; 0 ends an edge.")
    ] = None,
) -> None:
    """Change public settings for all agents at one time. Budgets, plans and clips never change."""
    from flockwise.deploy.changes import change_settings

    if tradeoff is None and not edge:
        raise ConfigError("nothing changes; give --tradeoff, --edge or both")
    weights = {_ends(ends): weight for ends, weight in map(_edge, edge or [])}
    plan = change_settings(folder, at.timestamp(), tradeoff, weights)
    assert plan.change is not None
    say(f"Version {plan.change.settings_version} of the settings begins at {at:%Y-%m-%d %H:%M:%S}.")
    say("From then on agents that do not have it and agents that do refuse each other.")
    _say_what_to_carry(folder)


def _ends(text: str) -> tuple[str, str]:
    one, slash, other = text.partition("/")
    if not slash:
        raise ConfigError(f"--edge {text}=...: write NAME/NAME=WEIGHT, as in alice/bob=0.5")
    return one, other


def _say_what_to_carry(folder: Path) -> None:
    """To the devices elsewhere, after a change."""
    from flockwise.deploy.network_plan import DEVICES_FOLDER

    if any((folder / DEVICES_FOLDER).glob("*")):
        say(f"Carry each folder in {folder / DEVICES_FOLDER} to the device of that agent, and there:")
        say("    flockwise agent accept FOLDER NAME")


def _edge(text: str) -> tuple[str, float]:
    name, equals, weight = text.rpartition("=")
    try:
        return name, float(weight if equals else "")
    except ValueError:
        raise ConfigError(f"{text!r}: write NAME=WEIGHT, as in alice=0.5") from None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _watch(folder: Path) -> None:
    """Until Ctrl-C."""
    with Live(console=RESULTS, auto_refresh=False) as shown, suppress(KeyboardInterrupt):
        while True:
            shown.update(_overview(folder), refresh=True)
            time.sleep(SECONDS_BETWEEN_LOOKS)


def _overview(folder: Path) -> Group:
    """The agents, and below them what somebody should look at."""
    from flockwise.runtime.overview import (
        agents_in,
        coming_change,
        crowded_doors,
        expiring,
        refused_connections,
    )

    agents, refused, change = agents_in(folder), refused_connections(folder), coming_change(folder)
    notes = [
        *(Text(warning, style="yellow") for warning in _late(agents)),
        *(
            Text(f"{host}: a crowd of connections without a certificate waits; its port is {door}", "yellow")
            for host, door in crowded_doors(folder).items()
        ),
        *(_expiry(folder, host, left) for host, left in expiring(folder).items()),
    ]
    if change is not None:
        begins = datetime.fromtimestamp(change.starts_at)
        notes.insert(
            0, Text(f"Version {change.settings_version} of the settings begins at {begins:%Y-%m-%d %H:%M:%S}")
        )
    if any(refused.values()):
        count = f"connections refused: {refused['refused']:,}, of strangers: {refused['strangers']:,}"
        notes.insert(0, Text(count))
    return Group(_table(agents), *notes)


def _table(agents: list[dict[str, Any]]) -> Table:
    headings = ["agent", "state", "updates", "releases", "ε spent", "neighbors up", "dropped", "last release"]
    if any(agent["rounds"] is not None for agent in agents):
        headings.append("rounds")
    rows = [_cells(agent)[: len(headings)] for agent in agents]
    return table_of(headings, rows, words=("agent", "state"))


def _cells(agent: dict[str, Any]) -> tuple[str, ...]:
    spent, total = agent["epsilon_spent"], agent["epsilon_total"]
    age = agent["last_release_age_s"]
    return (
        agent["name"],
        agent["state"],
        f"{agent['updates']:,}",
        f"{agent['releases']:,}",
        _spent(agent["is_private"], spent, total),
        str(agent["neighbors_up"]),
        f"{sum(agent['dropped'].values()):,}",
        "–" if age is None else f"{age:.0f} s ago" if age < 120 else f"{age / 60:.0f} min ago",
        _rounds(agent),
    )


def _spent(is_private: bool, spent: float | None, total: float | None) -> str:
    if not is_private:
        return "not private"
    return "–" if total is None else f"{spent or 0:.3g} of {total:.3g}"


def _expiry(folder: Path, host: str, left: timedelta) -> Text:
    """In red from 7 days before the end."""
    days = left / timedelta(days=1)
    when = f"has ended; other hosts refuse {host}" if days < 0 else f"ends in {days:.1f} days"
    style = "yellow" if days > 7 else "bold red"
    return Text(f"{host}: its certificate {when}. Renew it: flockwise network renew {folder}", style=style)


def _late(agents: list[dict[str, Any]]) -> Iterator[str]:
    late = [agent for agent in agents if agent["ticks_skipped"]]
    if late:
        worst = max(late, key=lambda agent: agent["ticks_skipped"])
        yield (
            f"{len(late)} agents left out updates because this machine was late, {worst['name']} about "
            f"{worst['ticks_skipped']:,} of them; use a lower tick_rate, or more machines"
        )


def _rounds(agent: dict[str, Any]) -> str:
    """How far its conversation has come."""
    count = "–" if agent["rounds"] is None else f"{agent['rounds']:,}"
    return f"{count} ✓" if agent["is_over"] else count
