"""What zenoh has received reaches the loop: all of it, soon, and without keeping anything else waiting."""

import asyncio
import selectors
from collections import deque

from flockwise.net.zenoh.session import AT_A_STRETCH, LONGEST_PAUSE, SHORTEST_PAUSE, QueueReader


class Idle(selectors.DefaultSelector):
    """Waits for nothing: the time that it was to wait has passed."""

    now = 0.0

    def select(self, timeout=None):
        self.now += timeout or 0.0
        return super().select(0)


class IdleLoop(asyncio.SelectorEventLoop):
    """Its time passes only while nothing is to be done, so a busy machine changes nothing."""

    def __init__(self):
        self._idle = Idle()
        super().__init__(self._idle)

    def time(self):
        return self._idle.now


class Queue(deque):
    looks = 0

    def try_recv(self):
        self.looks += 1
        return self.popleft() if self else None


def listened(*queues, seconds, meanwhile=lambda taken: None):
    """What a reader took from these queues in so many seconds, in order."""
    taken = []

    async def listen():
        reader = QueueReader(queues, taken.append)
        meanwhile(taken)
        await asyncio.sleep(seconds)
        reader.close()

    with asyncio.Runner(loop_factory=IdleLoop) as runner:
        runner.run(listen())
    return taken


def test_everything_arrives_in_the_order_of_its_source():
    first, second = Queue(range(1000)), Queue(range(1000, 3000))
    taken = listened(first, second, seconds=0.2)
    assert [item for item in taken if item < 1000] == list(range(1000))
    assert [item for item in taken if item >= 1000] == list(range(1000, 3000))


def test_others_have_their_turn_in_between():
    turns = []
    listened(
        Queue(range(4 * AT_A_STRETCH)),
        seconds=0.2,
        meanwhile=lambda taken: [
            asyncio.get_running_loop().call_later(0.0, lambda: turns.append(len(taken))) for _ in range(2)
        ],
    )
    assert 0 < turns[0] <= 2 * AT_A_STRETCH


def test_an_idle_reader_looks_rarely_and_delivers_soon():
    quiet = Queue()
    taken = listened(
        quiet,
        seconds=0.8 + 1.01 * LONGEST_PAUSE,
        meanwhile=lambda _: asyncio.get_running_loop().call_later(0.8, quiet.append, "late"),
    )
    assert taken == ["late"]
    # Once at first, then after pauses that double up to the longest one.
    assert quiet.looks < 1.0 / LONGEST_PAUSE + 10 < 1.0 / SHORTEST_PAUSE


def test_a_closed_reader_delivers_nothing():
    late = Queue()

    async def listen():
        taken = []
        QueueReader([late], taken.append).close()
        late.append("too late")
        await asyncio.sleep(3 * LONGEST_PAUSE)
        return taken

    assert asyncio.run(listen()) == []


def test_after_a_message_that_fails_the_next_ones_are_delivered():
    taken = []

    def take(item):
        if item == "odd":
            raise IndexError
        taken.append(item)

    async def listen():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        reader = QueueReader([Queue(["first", "odd", "second", "third"])], take)
        while len(taken) < 3:
            await asyncio.sleep(0.001)
        reader.close()

    asyncio.run(asyncio.wait_for(listen(), 60))
    assert taken == ["first", "second", "third"]
