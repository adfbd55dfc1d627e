"""The process of `flockwise agent run`."""

from __future__ import annotations

import sys
from pathlib import Path


def run_agent(folder: Path, *, until_input_ends: bool) -> None:
    """Run what the folder holds until Ctrl-C or SIGTERM, after a word to its owner if there is one to say."""
    from flockwise.deploy.folder import HostFolder
    from flockwise.runtime.newest import warning
    from flockwise.runtime.run import run_folder

    words = warning(HostFolder.read(folder).agents)
    if words is not None:
        print(words, file=sys.stderr, flush=True)
    run_folder(folder, until_input_ends=until_input_ends)
