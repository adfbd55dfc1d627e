"""The systemd units let a process write where the folders that `network init` makes have to be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.network.test_newest import watch
from tests.network.test_owner import network

from flockwise.deploy.folder import HostFolder
from flockwise.deploy.setup import host_together
from flockwise.runtime.newest import freshness_of

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FRESH = "/mnt/flockwise/agent0.fresh"


def unit(kind, instance):
    """The command of a unit, and where its sandbox lets it write."""
    lines = (DEPLOY / f"flockwise-{kind}@.service").read_text().replace("%i", instance).splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert values["ProtectSystem"] == "strict"
    return values["ExecStart"].split(), [Path(one.lstrip("-")) for one in values["ReadWritePaths"].split()]


@pytest.mark.parametrize(("kind", "processes"), [("agent", 0), ("gateway", 1)])
def test_a_unit_may_write_all_that_its_process_writes(tmp_path, kind, processes):
    folder = network(tmp_path)[0].parent.parent
    watch(folder / "agents" / "agent0", FRESH)
    home = host_together(folder, processes)[0]
    command, writable = unit(kind, home.name)
    # The folders go to the machine as they are.
    installed = Path("/var/lib/flockwise") / home.relative_to(folder)
    assert command[1:] == ["agent", "run", str(installed)]
    host = HostFolder.read(home)
    watched = freshness_of(host.agents[0])
    assert watched is not None
    paths = [host.path, *(agent.path for agent in host.agents)]
    assert len(paths) == (4 if kind == "gateway" else 2)
    written = [Path("/var/lib/flockwise") / os.path.relpath(path, folder) for path in paths]
    for path in (watched.file, *written):
        assert any(path.is_relative_to(root) for root in writable), path


def test_both_units_have_the_same_sandbox():
    def sandbox(kind):
        lines = (DEPLOY / f"flockwise-{kind}@.service").read_text().splitlines()
        settings = lines[lines.index("[Service]") :]
        differing = ("#", "ExecStart=", "ReadWritePaths=", "MemoryMax=")
        return [line for line in settings if not line.startswith(differing)]

    assert sandbox("agent") == sandbox("gateway")
