"""A crowd at the door of a real agent: `python -m tests.network.crowd`.

Two private agents run as processes that may open 1,100 files each. Somebody opens 3,500 connections to one
of them for a while, as fast as it can, shows no certificate, and opens another one for each that is closed:
first from an address of nobody's, then from that of the agent's neighbor.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.network.processes import Processes, RealNetwork, ring

from flockwise.deploy.folder import OwnBudget
from flockwise.deploy.network_plan import NetworkPlan
from flockwise.deploy.setup import free_addresses
from flockwise.runtime.overview import read_status

LIMIT = 1100
CROWD = 3500
SOURCES = ("127.0.0.9", "127.0.0.1")
BUDGET = OwnBudget(epsilon=1.0, delta=1e-5, updates=2000, clip=1.0)


def press(address: str, source: str, seconds: float) -> None:
    """What the crowd does, in a process of its own."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (CROWD + 100, CROWD + 100))
    host, port = address.split(":")
    held: list[socket.socket] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        while len(held) < CROWD:
            one = socket.socket()
            one.setblocking(False)
            one.bind((source, 0))
            one.connect_ex((host, int(port)))
            held.append(one)
        time.sleep(0.3)
        held = [one for one in held if _is_open(one)]


def _is_open(one: socket.socket) -> bool:
    try:
        if one.recv(1):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    one.close()
    return False


def watch(network: RealNetwork, source: str, seconds: float, after: float) -> None:
    """Print how the agent does during the attack and after it."""
    address = NetworkPlan.read(network.folder).addresses[0]
    attack = [sys.executable, "-m", "tests.network.crowd", "--press", address, source, str(seconds)]
    before, began = network.releases(), time.monotonic()
    oldest, most, doors = 0.0, 0, Counter[str]()
    with subprocess.Popen(attack):
        while time.monotonic() < began + seconds + after:
            status = read_status(network.path("agent0"))
            if status is None:  # it is just being replaced
                continue
            oldest = max(oldest, time.time() - status.written_at)
            doors[status.door] += 1
            with suppress(OSError):
                most = max(most, len(os.listdir(f"/proc/{status.pid}/fd")))
            time.sleep(0.1)
    made = {name: count - before[name] for name, count in network.releases().items()}
    looks = sum(doors.values())
    shares = {door: f"{(seconds + after) * count / looks:.0f} s" for door, count in doors.items()}
    print(f"from {source}: at most {most} descriptors, status at most {oldest:.1f} s old")
    print(f"  releases meanwhile {made}, the door was {shares}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.network.crowd", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--after", type=float, default=60.0)
    parser.add_argument("--press", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.press:
        address, source, seconds = options.press
        press(address, source, float(seconds))
        return
    with tempfile.TemporaryDirectory() as folder:
        addresses = free_addresses("127.0.0.1", 2)
        network = RealNetwork(Path(folder) / "net", addresses, graph=ring(2), tick_rate=2.0, budget=BUDGET)
        limited = dict.fromkeys(network.names, ("prlimit", f"--nofile={LIMIT}:{LIMIT}"))
        with Processes(network, limited) as agents:
            agents.start(*network.names)
            for name in network.names:
                agents.wait(name, lambda one: one["neighbors_up"] == 1 and one["releases"] >= 2)
            for source in SOURCES:
                watch(network, source, options.seconds, options.after)
            agents.stop()
        network.assert_within_budget()


if __name__ == "__main__":
    main()
