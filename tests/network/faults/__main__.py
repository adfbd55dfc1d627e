"""Run schedules: `python -m tests.network.faults --schedules 10000`, or one again: `--seed 123`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.network.faults.bugs import BUGS, NoBug
from tests.network.faults.schedule import Outcome, Schedule
from tests.network.faults.watch import Broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.network.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="run this one schedule")
    parser.add_argument("--schedules", type=int, default=100, help="how many, with consecutive seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--bug", choices=sorted(BUGS), help="seed a mistake")
    parser.add_argument("--files", action="store_true", help="real SQLite files and secure noise")
    options = parser.parse_args()
    if options.seed is not None:
        options.first, options.schedules = options.seed, 1
    failed, began, outcomes = 0, time.monotonic(), list[Outcome]()
    for seed in range(options.first, options.first + options.schedules):
        try:
            outcomes.append(run(seed, options.bug, options.files))
        except Broken as broken:
            failed += 1
            print(f"BROKEN {broken}", flush=True)
    if options.seed is not None:
        print(*outcomes)
    seconds = time.monotonic() - began
    events = sum(outcome.events for outcome in outcomes)
    private = sum(outcome.is_private for outcome in outcomes)
    slowest = max((outcome.seconds_to_recover for outcome in outcomes), default=0)
    counts = sum((outcome.counts for outcome in outcomes), Counter())
    print(
        f"{len(outcomes) + failed} schedules ({private} private), {events} events, "
        f"recovery within {slowest} s, {failed} broken, {seconds:.0f} s"
    )
    print(", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
    return 1 if failed else 0


def run(seed: int, bug: str | None = None, has_files: bool = False) -> Outcome:
    mistake = NoBug() if bug is None else BUGS[bug]()
    if not has_files:
        return Schedule(seed, mistake).run()
    with tempfile.TemporaryDirectory() as folder:
        return Schedule(seed, mistake, Path(folder)).run()


if __name__ == "__main__":
    sys.exit(main())
