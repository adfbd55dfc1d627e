"""What comes from other threads reaches the loop in order and in batches, and nobody can fill the memory."""

import asyncio
import threading
from unittest.mock import Mock

from flockwise.net.zenoh.inbox import AT_A_STRETCH, Inbox


def run(main):
    return asyncio.run(main())


def test_all_of_a_batch_comes_in_order_with_one_wake_up(monkeypatch):
    async def main():
        taken = []
        loop = asyncio.get_running_loop()
        inbox = Inbox(loop, taken.append, share=100)
        wake = Mock(side_effect=loop.call_soon_threadsafe)
        monkeypatch.setattr(loop, "call_soon_threadsafe", wake)
        thread = threading.Thread(target=lambda: [inbox.put("anna", i) for i in range(100)])
        thread.start()
        thread.join()
        await asyncio.sleep(0.05)
        return taken, wake.call_count

    assert run(main) == (list(range(100)), 1)


def test_a_sender_that_exceeds_its_share_loses_messages_and_others_do_not():
    async def main():
        taken = []
        inbox = Inbox(asyncio.get_running_loop(), taken.append, share=3)
        flood = [inbox.put("mallory", ("mallory", i)) for i in range(1000)]
        honest = inbox.put("anna", ("anna", 0))
        waiting = len(inbox)
        await asyncio.sleep(0)
        again = inbox.put("mallory", ("mallory", 1000))
        await asyncio.sleep(0)
        return sum(flood), honest, waiting, again, taken

    accepted, honest, waiting, again, taken = run(main)
    assert (accepted, honest, waiting, again) == (3, True, 4, True)
    assert taken == [("mallory", 0), ("mallory", 1), ("mallory", 2), ("anna", 0), ("mallory", 1000)]


def test_a_long_queue_lets_others_have_their_turn():
    async def main():
        order = []
        loop = asyncio.get_running_loop()
        inbox = Inbox(loop, order.append, share=10 * AT_A_STRETCH)
        for i in range(2 * AT_A_STRETCH):
            inbox.put("anna", i)
        loop.call_soon(order.append, "timer")
        while len(order) <= 2 * AT_A_STRETCH:
            await asyncio.sleep(0)
        return order

    assert run(main).index("timer") <= AT_A_STRETCH


def test_nothing_comes_out_after_it_is_closed():
    async def main():
        taken = []
        inbox = Inbox(asyncio.get_running_loop(), taken.append, share=10)
        inbox.put("anna", 1)
        inbox.close()
        inbox.put("anna", 2)
        await asyncio.sleep(0.01)
        return taken, len(inbox)

    assert run(main) == ([], 0)


def test_many_threads_lose_nothing():
    async def main():
        taken = []
        inbox = Inbox(asyncio.get_running_loop(), taken.append, share=10_000)
        threads = [
            threading.Thread(target=lambda name=name: [inbox.put(name, (name, i)) for i in range(2000)])
            for name in ("anna", "ben", "carl")
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) or len(inbox):
            await asyncio.sleep(0.001)
        return taken

    taken = run(main)
    for name in ("anna", "ben", "carl"):
        assert [i for who, i in taken if who == name] == list(range(2000))
