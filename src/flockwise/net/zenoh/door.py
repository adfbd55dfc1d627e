"""The listening port of a host: how many may wait at it, and who is shown out.

zenoh takes every connection, and gives it a few seconds to show a certificate. It has no bound on how many do
so at once, and closes at most ten of them a second, however they end: a thousand sockets that say nothing
would take all descriptors of the process. So the door looks at the port. While too many wait, only the
addresses of neighbors are let in, and while as many from these addresses do, nobody: the kernel drops what
comes to the port. Connections that are there go on, and the host dials its neighbors itself meanwhile.
For as long as not everybody is let in, the process may open a few more files than usual: a crowd that came
faster than the door looks may have taken all descriptors.

This works on Linux alone (a socket filter); elsewhere zenoh's few seconds have to do.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from flockwise.net.descriptors import give_reserve_back, use_reserve
from flockwise.net.names import ip_address, split_address

# Connections without a certificate so far. Hosts that start at the same time are far fewer.
MOST_WAITING: Final = 128
# That the kernel keeps until zenoh takes them.
BACKLOG: Final = 64
# Between two looks, in seconds. A crowd that comes between two of them is inside.
LOOK_EVERY: Final = 0.05
LOOK_WHILE_SHUT: Final = 1.0
DESCRIPTORS: Final = Path("/proc/self/fd")
# From Linux's headers: options of a socket, instructions of a filter, and where the source of a packet is.
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
INSTRUCTION: Final = struct.Struct("HBBI")
LOAD, JUMP_IF_EQUAL, KEEP = 0x20, 0x15, 0x06
SOURCE: Final = 2**32 - 0x100000 + 12
ALL: Final = 2**32 - 1


class Openness(Enum):
    """Whom the door lets in."""

    OPEN = "open"
    NEIGHBORS = "open to neighbors"
    SHUT = "shut"


class Door:
    """The port at which this process listens, until it is closed.

    neighbors: the addresses of neighboring hosts; only numbers of IPv4 are told apart.
    links: where the links come from that there are now. log: called when the door opens or shuts.
    """

    def __init__(
        self,
        listen: str,
        neighbors: Iterable[str],
        links: Callable[[], Iterable[str]],
        log: Callable[..., None],
    ) -> None:
        self._port = split_address(listen)[1]
        numbers = {ip_address(split_address(address)[0]) for address in neighbors}
        self._neighbors = sorted(int(one) for one in numbers if isinstance(one, IPv4Address))
        self._links = links
        self._log = log
        self._usual = 0
        self._allowed: int | None = None  # descriptors, while the reserve is in use
        self.openness = Openness.OPEN
        self._listener: socket.socket | None = None
        if sys.platform == "linux":
            self._listener = self._find_listener()
        if self._listener is not None:
            self._listener.listen(BACKLOG)

    def close(self) -> None:
        """Before the session ends: the port is free only when nobody holds it."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._keep_reserve()

    def look(self) -> float:
        """Shut the door or open it again; after how many seconds to look again."""
        if self._listener is not None:
            wanted = self._wanted(*self._waiting())
            if wanted is not self.openness:
                self._turn(self._listener, wanted)
        return LOOK_EVERY if self.openness is Openness.OPEN else LOOK_WHILE_SHUT

    def show_out(self, address: str) -> None:
        """End the connection that came from there; zenoh then forgets its session."""
        host, port = split_address(address)
        for connection in self._connections():
            with suppress(OSError), socket.socket(fileno=os.dup(connection)) as ended:
                if ended.getpeername()[:2] == (host, port):
                    ended.shutdown(socket.SHUT_RDWR)

    def _waiting(self) -> tuple[int, int]:
        """How many connections have no link yet, and how many of them come from neighbors' addresses.

        They are counted only where there are more than usual.
        """
        try:
            # Since Linux 6.2 the size of the folder; before, it has none.
            open_now = DESCRIPTORS.stat().st_size or len(os.listdir(DESCRIPTORS))
            if self.openness is Openness.OPEN and open_now <= self._usual + MOST_WAITING:
                return 0, 0
            coming = [_source(connection) for connection in self._connections()]
        except OSError:  # no descriptor is left
            return MOST_WAITING + 1, MOST_WAITING + 1
        linked = [split_address(address)[0] for address in self._links()]
        waiting = max(0, len(coming) - len(linked))
        self._usual = open_now - waiting
        return waiting, self._count_neighbors(coming) - self._count_neighbors(linked)

    def _count_neighbors(self, hosts: Iterable[str]) -> int:
        return sum(
            isinstance(number := ip_address(host), IPv4Address) and int(number) in self._neighbors
            for host in hosts
        )

    def _wanted(self, waiting: int, of_neighbors: int) -> Openness:
        """It opens again when half as many wait as shut it."""
        if of_neighbors > MOST_WAITING // (2 if self.openness is Openness.SHUT else 1):
            return Openness.SHUT
        is_too_many = waiting > MOST_WAITING // (1 if self.openness is Openness.OPEN else 2)
        return Openness.NEIGHBORS if is_too_many else Openness.OPEN

    def _turn(self, listener: socket.socket, openness: Openness) -> None:
        admitted = self._neighbors if openness is Openness.NEIGHBORS else []
        program = ctypes.create_string_buffer(_filter(admitted))
        pointer = struct.pack("HL", len(program) // INSTRUCTION.size, ctypes.addressof(program))
        with suppress(OSError):  # a kernel without filters
            if openness is Openness.OPEN:
                listener.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
            else:
                listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, pointer)
        if openness is Openness.OPEN:
            self._keep_reserve()
        elif self._allowed is None:
            self._allowed = use_reserve()
        self.openness = openness
        self._log("door", text=openness.value, port=self._port)

    def _keep_reserve(self) -> None:
        if self._allowed is not None:
            give_reserve_back(self._allowed)
            self._allowed = None

    def _find_listener(self) -> socket.socket | None:
        """None if the process may not look at its own sockets."""
        found = next((descriptor for descriptor, is_listening in self._sockets() if is_listening), None)
        return None if found is None else socket.socket(fileno=os.dup(found))

    def _connections(self) -> Iterator[int]:
        return (descriptor for descriptor, is_listening in self._sockets() if not is_listening)

    def _sockets(self) -> Iterator[tuple[int, bool]]:
        """The descriptors of this process at the port, and whether each is the listening one."""
        for name in os.listdir(DESCRIPTORS) if sys.platform == "linux" else ():
            descriptor = int(name)
            if self._listener is not None and descriptor == self._listener.fileno():
                continue
            with suppress(OSError):  # it is closed by now, or is no socket
                one = socket.socket(fileno=descriptor)
                try:
                    is_ours = one.family in (socket.AF_INET, socket.AF_INET6)
                    if is_ours and one.getsockname()[1] == self._port:
                        yield descriptor, bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                finally:
                    one.detach()


def _source(connection: int) -> str:
    """The host at the other end; none if it has hung up."""
    one = socket.socket(fileno=connection)
    try:
        return one.getpeername()[0]
    except OSError:
        return ""
    finally:
        one.detach()


def _filter(admitted: Iterable[int]) -> bytes:
    """A program that keeps the packets from these addresses, and nothing of others."""
    kept = [
        (JUMP_IF_EQUAL, 0, 1, address) if is_test else (KEEP, 0, 0, ALL)
        for address in admitted
        for is_test in (True, False)
    ]
    return b"".join(INSTRUCTION.pack(*one) for one in [(LOAD, 0, 0, SOURCE), *kept, (KEEP, 0, 0, 0)])
