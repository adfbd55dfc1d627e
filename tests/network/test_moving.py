"""An agent moves to another device: its right to release is in one place, whatever is interrupted."""

from __future__ import annotations

import json
import shutil
import zipfile

import numpy as np
import pytest
from tests.network.test_newest import spent, until_one_is_spent
from tests.network.test_owner import UPDATES, network, run
from tests.network.test_setup import killed_at_change
from tests.network.world import FolderWorld

from flockwise.deploy.folder import STATE_FOLDER, AgentFolder, is_here
from flockwise.deploy.setup import host_together
from flockwise.errors import LedgerError, NetworkError
from flockwise.net.store import read_state
from flockwise.runtime.moving import move_in, move_out
from flockwise.runtime.newest import note_births


def test_an_agent_goes_on_elsewhere_and_never_again_where_it_was(tmp_path):
    paths = network(tmp_path)
    until_one_is_spent(paths)
    with FolderWorld(paths) as world:
        world[0].add_data(np.array([[0.2, -0.1, 1.0]]), np.ones(1))
        model = world[0].own_model()
    before, bundle, device = spent(paths[0]), tmp_path / "agent0.zip", tmp_path / "device" / "agent0"
    done = run("move-out", paths[0], "--to", bundle)
    assert done.exit_code == 0, done.output
    assert bundle.stat().st_mode & 0o777 == 0o600
    done = run("move-in", bundle, device)
    assert done.exit_code == 0, done.output
    assert not bundle.exists()
    with FolderWorld([device, *paths[1:]]) as world:
        assert world[0].node.obstacle is None
        np.testing.assert_array_equal(world[0].own_model(), model)
        world.run(60)
    assert spent(device) == UPDATES
    with pytest.raises(NetworkError, match="agent 'agent0' has moved out"):
        AgentFolder.read(paths[0])
    # Even somebody who removes what says so gets no release out of the old place.
    (paths[0] / "moved.json").unlink()
    with FolderWorld([paths[0]]) as world:
        assert world[0].node.obstacle == "behind"
    assert spent(paths[0]) == before


@pytest.mark.parametrize(
    "step", ["before the old place ends", "while it ends", "before the file has its name"]
)
def test_a_move_that_is_interrupted_is_finished_by_the_same_command(tmp_path, monkeypatch, step):
    """At every moment at most one place has the right to release, and nothing is lost."""
    import flockwise.runtime.moving as moving

    paths, bundle = network(tmp_path), tmp_path / "agent0.zip"
    until_one_is_spent(paths)
    broken = {
        "before the old place ends": (moving, "_finish"),
        "while it ends": (moving.FileStore, "mark_newer_release"),
        "before the file has its name": (type(bundle), "rename"),
    }

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(*broken[step], killed)
        with pytest.raises(KeyboardInterrupt):
            move_out(paths[0], bundle)
    assert not bundle.exists()
    with pytest.raises(NetworkError, match="has moved out"):
        AgentFolder.read(paths[0])
    move_out(paths[0], bundle)
    move_in(bundle, tmp_path / "device" / "agent0")
    with FolderWorld([tmp_path / "device" / "agent0", *paths[1:]]) as world:
        world.run(60)
    assert spent(tmp_path / "device" / "agent0") == UPDATES
    assert read_state(paths[0] / STATE_FOLDER).newer_release is not None


@pytest.mark.network
def test_a_move_that_is_killed_anywhere_leaves_the_right_to_release_in_one_place(tmp_path):
    """The same command finishes it, and nobody has to name another folder, where the agent would be twice."""
    paths = network(tmp_path)
    until_one_is_spent(paths)
    before = spent(paths[0])
    kills, is_killed = 0, [True]
    while any(is_killed):
        home, away, bundle = (tmp_path / f"{kills}" / name for name in ("home", "away", "agent0.zip"))
        shutil.copytree(paths[0], home)
        note_births(AgentFolder.read(home))
        is_killed = [killed_at_change(kills, move_out, home, bundle)]
        assert is_killed != [bundle.exists()]
        if any(is_killed):
            move_out(home, bundle)
        with pytest.raises(NetworkError, match="has moved out"):
            AgentFolder.read(home)
        is_killed.append(killed_at_change(kills, move_in, bundle, away))
        if bundle.exists():
            move_in(bundle, away)
        assert spent(away) == before
        assert AgentFolder.read(away).name == "agent0"
        assert not away.with_name("away.part").exists()
        kills += 1
    assert kills > 20


def test_an_agent_that_runs_or_has_a_damaged_ledger_does_not_move(tmp_path):
    paths, bundle = network(tmp_path), tmp_path / "agent0.zip"
    with FolderWorld(paths) as world:
        world.run(60)
        with pytest.raises(NetworkError, match="running already"):
            move_out(paths[0], bundle)
    ledger = paths[0] / STATE_FOLDER / "ledger.sqlite"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole.replace(b"gaussian", b"gauss1an"))
    with pytest.raises(LedgerError, match="damaged"):
        move_out(paths[0], bundle)
    ledger.write_bytes(whole)
    assert is_here(paths[0])
    assert not bundle.exists()


def test_an_agent_of_a_gateway_does_not_move(tmp_path):
    paths = network(tmp_path)
    host_together(tmp_path / "net", 1)
    with pytest.raises(NetworkError, match="gateway 'gateway1' runs it; let it run by itself first"):
        move_out(paths[0], tmp_path / "agent0.zip")


def test_a_network_runs_on_without_the_agents_that_moved_out(tmp_path):
    paths = network(tmp_path)
    move_out(paths[0], tmp_path / "agent0.zip")
    assert host_together(tmp_path / "net", 0) == paths[1:]
    hosts = host_together(tmp_path / "net", 1)
    assert 'agents = [\n    "agent1",\n    "agent2",\n]' in (hosts[0] / "host.toml").read_text()
    # Its new roster waits to be carried to its device.
    assert (tmp_path / "net" / "devices" / "agent0" / "roster").is_file()


def test_files_that_are_no_moved_agents_are_refused(tmp_path):
    path, bundle = network(tmp_path)[0], tmp_path / "agent0.zip"
    bundle.write_bytes(b"no archive")
    with pytest.raises(NetworkError, match="is damaged"):
        move_in(bundle, tmp_path / "device")
    with zipfile.ZipFile(bundle, "w") as packed:
        packed.writestr("../elsewhere.toml", "name = 'mallory'")
    with pytest.raises(NetworkError, match=r"'\.\./elsewhere\.toml', which is not of an agent's folder"):
        move_in(bundle, tmp_path / "device")
    assert not (tmp_path / "device").exists()
    with pytest.raises(NetworkError, match="there is a file already"):
        move_out(path, bundle)
    with pytest.raises(NetworkError, match="there is something already"):
        move_in(bundle, path)


def test_with_a_freshness_file_a_second_copy_of_a_bundle_forfeits_the_budget(tmp_path):
    paths = network(tmp_path)
    settings = paths[0] / "agent.toml"
    settings.write_text(f'freshness = "{tmp_path / "agent0.fresh"}"\n{settings.read_text()}')
    until_one_is_spent(paths)
    bundle = tmp_path / "agent0.zip"
    move_out(paths[0], bundle)
    shutil.copy(bundle, tmp_path / "copy.zip")
    first, second = tmp_path / "first" / "agent0", tmp_path / "second" / "agent0"
    move_in(bundle, first)
    move_in(tmp_path / "copy.zip", second)
    with FolderWorld([first, *paths[1:]]) as world:
        world.run(60)
    before = spent(second)
    with FolderWorld([second]) as world:
        assert world[0].node.obstacle == "behind"
    assert spent(second) == before < spent(first) == UPDATES
    assert json.loads((tmp_path / "agent0.fresh").read_text())["agent"] == "agent0"
