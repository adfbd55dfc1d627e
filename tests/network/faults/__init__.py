"""Agents under every fault that one seed can think of: `python -m tests.network.faults --seed 123`.

Everything that an agent is made of runs here as it does on a real machine (agent, gate, outbox, wire format,
intake, node), on a clock, a network and disks that are under the control of one random.Random. A schedule of
faults is a function of its seed alone: a failing seed fails again, at the same event.

    disks.py     what survives a crash, and what a write can come to
    post.py      a network that delays, reorders, duplicates, drops, corrupts and forges
    world.py     agents, their lives and deaths, the queue of events
    schedule.py  which faults, and when
    watch.py     what must hold after every event
    bugs.py      mistakes that the watch has to notice
"""
