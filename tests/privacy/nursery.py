"""Starts agents in no time: it has everything imported and forks once per life.

A program of its own, because a process with threads, as a test runner may be, must not fork. Orders come
as lines of JSON on standard input and are answered by a line on standard output:
{"start": {…arguments of worker.live…}} by the number of the process, {"wait": process} by how it ended
(its code, or minus the signal that killed it).
"""

from __future__ import annotations

import json
import os
import sys
import traceback

from tests.privacy import worker

from flockwise.privacy.noise import SecureNoise


def start(arguments: dict) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        code = worker.live(**arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def main() -> None:
    SecureNoise().check(worker.plan(1).event(1, 1.0, 1, 2.0**-20))  # load opendp once, for all
    for line in sys.stdin:
        ((order, argument),) = json.loads(line).items()
        print({"start": start, "wait": wait}[order](argument), flush=True)


if __name__ == "__main__":
    main()
