"""A network that a test can spoil: namespaces of the kernel, and every packet between them in its hands.

Each namespace has one interface (a TUN device), whose other end is a file here. A thread carries packets
from one to another: it loses some, lets all wait, and keeps those between two halves. What it carries are
packets of the kernel's own TCP, which does with loss and delay what it does on any network.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import secrets
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import pytest

TUN = Path("/dev/net/tun")
SET_INTERFACE = 0x400454CA  # TUNSETIFF
IP_PACKETS, NO_HEADER = 0x0001, 0x1000  # IFF_TUN, IFF_NO_PI
LARGEST_PACKET = 65536
LONGEST_WAIT = 0.05  # seconds, until the thread looks whether it is to end


def skip_unless_possible() -> None:
    """Say why where this machine, or this user, cannot have namespaces."""
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command `ip` (Debian and Ubuntu: install iproute2)")
    if not TUN.exists():
        pytest.skip(f"this kernel has no {TUN}")


class Wires:
    """So many namespaces that reach each other through this object alone.

    loss: share of packets that never arrive. delay: seconds that each takes.
    """

    def __init__(self, n_places: int, *, seed: int = 0) -> None:
        skip_unless_possible()
        prefix = f"fw{secrets.token_hex(3)}"
        self.places = [f"{prefix}-{i}" for i in range(n_places)]
        self.loss = 0.0
        self.delay = 0.0
        self.carried = 0
        self.lost = 0
        self._half: frozenset[int] = frozenset()
        self._chance = random.Random(seed)
        self._ends: list[int] = []
        self._on_the_way: list[tuple[float, int, int, bytes]] = []
        self._order = count()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._carry, name=prefix)
        self._undo = ExitStack()

    def address(self, place: int, port: int = 7447) -> str:
        return f"{_ip_of(place)}:{port}"

    def inside(self, place: int) -> list[str]:
        """What to put before a command that is to run in this namespace."""
        return ["ip", "netns", "exec", self.places[place]]

    def cut_off(self, half: Iterable[int]) -> None:
        """From now on nothing passes between these and the others."""
        self._half = frozenset(half)

    def heal(self) -> None:
        self._half = frozenset()

    def __enter__(self) -> Wires:
        with ExitStack() as undo:
            for place, name in enumerate(self.places):
                self._make(place, name, undo)
            self._thread.start()
            undo.callback(self._thread.join)
            undo.callback(self._ending.set)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _make(self, place: int, name: str, undo: ExitStack) -> None:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip(f"network namespaces cannot be made here: {made.stderr.strip()}")
        undo.callback(_ip, "netns", "delete", name)
        end = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        undo.callback(os.close, end)
        fcntl.ioctl(end, SET_INTERFACE, struct.pack("16sH22x", name.encode(), IP_PACKETS | NO_HEADER))
        # The interface moves into the namespace, its other end stays here.
        _ip("link", "set", name, "netns", name)
        _ip("-netns", name, "address", "add", f"{_ip_of(place)}/24", "dev", name)
        _ip("-netns", name, "link", "set", "lo", "up")
        _ip("-netns", name, "link", "set", name, "up")
        self._ends.append(end)

    def _carry(self) -> None:
        while not self._ending.is_set():
            now = time.monotonic()
            while self._on_the_way and self._on_the_way[0][0] <= now:
                _, _, end, packet = heapq.heappop(self._on_the_way)
                with suppress(OSError):  # the interface is gone, or its queue is full: one more is lost
                    os.write(end, packet)
            wait = self._on_the_way[0][0] - now if self._on_the_way else LONGEST_WAIT
            for end in select.select(self._ends, [], [], min(wait, LONGEST_WAIT))[0]:
                self._take_from(end)

    def _take_from(self, end: int) -> None:
        with suppress(BlockingIOError):
            while True:
                packet = os.read(end, LARGEST_PACKET)
                receiver = _receiver_of(packet)
                if receiver is not None and receiver < len(self._ends):
                    self._post(self._ends.index(end), receiver, packet)

    def _post(self, sender: int, receiver: int, packet: bytes) -> None:
        if (sender in self._half) != (receiver in self._half):
            return
        if self._chance.random() < self.loss:
            self.lost += 1
            return
        self.carried += 1
        due = time.monotonic() + self.delay
        heapq.heappush(self._on_the_way, (due, next(self._order), self._ends[receiver], packet))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _ip_of(place: int) -> str:
    return f"198.18.0.{place + 1}"  # a range that is set aside for tests of networks


def _receiver_of(packet: bytes) -> int | None:
    """By the address in the header of IPv4; None for what is not for one of ours."""
    if packet[0] >> 4 != 4 or packet[16:19] != bytes((198, 18, 0)):
        return None
    return packet[19] - 1
