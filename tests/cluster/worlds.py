"""Machines for tests: network namespaces that reach each other and nothing else, and Ray nodes in them.

Ray ignores 127.0.0.1 and looks for an address that others can reach. So each machine is a namespace with an
address of its own on a bridge in the first of them. Making one needs root.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    "RAY_USAGE_STATS_ENABLED": "0",
    # These machines reach each other and nobody else.
    "RAY_AUTH_MODE": "disabled",
    # A machine that is gone is found missing within a few seconds, not half a minute.
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
}
RAY = Path(sys.executable).with_name("ray")


def can_make_machines() -> bool:
    """Whether this user may make network namespaces."""
    if shutil.which("unshare") is None:
        return False
    made = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False)
    return made.returncode == 0


class World:
    """Machines by number; number 0 has the bridge that links them."""

    def __init__(self) -> None:
        self.name = f"fw{secrets.token_hex(3)}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._count = 0

    def add_machine(self) -> int:
        """A namespace with the address 10.77.0.(1 + number)."""
        number, self._count = self._count, self._count + 1
        space, home = self._space(number), self._space(0)
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
        if number == 0:
            run("ip", "-n", space, "link", "add", "bridge", "type", "bridge")
            run("ip", "-n", space, "link", "set", "bridge", "up")
            run("ip", "-n", space, "addr", "add", f"{self.address(0)}/24", "dev", "bridge")
        else:
            wire = f"wire{number}"
            pair = ["link", "add", "eth", "type", "veth", "peer", "name", wire, "netns", home]
            run("ip", "-n", space, *pair)
            run("ip", "-n", home, "link", "set", wire, "master", "bridge", "up")
            run("ip", "-n", space, "addr", "add", f"{self.address(number)}/24", "dev", "eth")
            run("ip", "-n", space, "link", "set", "eth", "up")
        return number

    def address(self, number: int) -> str:
        return f"10.77.0.{1 + number}"

    @property
    def cluster(self) -> str:
        return f"{self.address(0)}:6379"

    def start_node(self, number: int, folder: Path) -> None:
        """A Ray node, the head on machine 0; it stays until it is killed."""
        command = [str(RAY), "start", "--block", "--num-cpus=1", "--object-store-memory=200000000"]
        command += [f"--node-ip-address={self.address(number)}", "--disable-usage-stats"]
        if number == 0:
            command += ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={folder}"]
        else:
            command += [f"--address={self.cluster}"]
        self.nodes[number] = self.start(number, command, folder / f"node{number}.log")

    def has_ended(self, number: int) -> bool:
        """Whether a node is gone, or never came to be."""
        return self.nodes[number].poll() is not None

    def start(self, number: int, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        """A process on a machine, in a group of its own."""
        log.parent.mkdir(parents=True, exist_ok=True)
        inside = self.inside(number, command)
        with log.open("ab") as stream:
            process = subprocess.Popen(
                inside, env=ENVIRONMENT, stdout=stream, stderr=stream, cwd=ROOT, start_new_session=True
            )
        self.processes.append(process)
        return process

    def inside(self, number: int, command: list[str]) -> list[str]:
        """A command as it is run on a machine."""
        return ["ip", "netns", "exec", self._space(number), *command]

    def kill_machine(self, number: int) -> None:
        """All processes of a machine, at once and without a word."""
        for pid in output("ip", "netns", "pids", self._space(number)).split():
            kill(int(pid))

    def called(self, number: int, name: str) -> list[int]:
        """The processes on a machine that call themselves so."""
        pids = map(int, output("ip", "netns", "pids", self._space(number)).split())
        return [pid for pid in pids if name.encode() in commandline(pid)]

    def close(self) -> None:
        for number in range(self._count):
            self.kill_machine(number)
        for process in self.processes:
            process.wait(300)
        for number in reversed(range(self._count)):
            run("ip", "netns", "del", self._space(number))

    def _space(self, number: int) -> str:
        return f"{self.name}-{number}"


@contextmanager
def world(machines: int = 1) -> Iterator[World]:
    made = World()
    try:
        for _ in range(machines):
            made.add_machine()
        yield made
    finally:
        made.close()


def wait_for(condition, seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def commandline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
