"""A restored copy of a ledger forfeits its budget, unless a freshness file proves that it is the newest."""

from __future__ import annotations

import shutil
import sqlite3

import numpy as np
import pytest
from tests.network.test_owner import UPDATES, network, run
from tests.network.world import FolderWorld

from flockwise.deploy.folder import AGENT_FILE, STATE_FOLDER, AgentFolder
from flockwise.errors import LedgerError, NetworkError
from flockwise.net.store import NAME as STORE_NAME
from flockwise.net.store import read_state
from flockwise.privacy.ledger import NAME, read_statement
from flockwise.runtime.newest import birth_of, warning


def spent(path):
    return len(read_statement(path / STATE_FOLDER).rows)


def watch(path, file):
    """Name a freshness file in agent.toml."""
    settings = path / AGENT_FILE
    settings.write_text(f'freshness = "{file}"\n{settings.read_text()}')


def let_learn(paths, seconds=3.0):
    with FolderWorld(paths) as world:
        world.run(seconds)


def until_one_is_spent(paths):
    """Let the first agent release something, and not all that it may."""
    with FolderWorld(paths) as world:
        while not world[0].node.releases:
            world.run(0.01)
        assert world[0].node.releases < UPDATES


def copied(path, folder):
    return shutil.copytree(path, folder / path.name)


def restored(path, backup):
    """As a backup program does it: the files are made anew, with their old content and times."""
    shutil.rmtree(path / STATE_FOLDER)
    shutil.copytree(backup, path / STATE_FOLDER)


def test_a_copy_of_a_folder_never_releases_again_even_if_no_neighbor_knows_better(tmp_path):
    paths = network(tmp_path)
    until_one_is_spent(paths)
    before = spent(paths[0])
    moved = copied(paths[0], tmp_path / "elsewhere")
    with FolderWorld([moved, *paths[1:]]) as world:
        world.run(30)
        assert world[0].node.obstacle == "behind"
        assert world[0].node.releases == before
        assert len(world[0].own_model())  # it still learns for its owner
    # It stays so, wherever it is started next; the place that it left goes on.
    let_learn([moved, *paths[1:]], 30)
    assert spent(moved) == before
    let_learn(paths, 60)
    assert spent(paths[0]) == UPDATES


def test_a_restored_state_of_before_is_seen(tmp_path):
    paths = network(tmp_path)
    until_one_is_spent(paths)
    shutil.copytree(paths[0] / STATE_FOLDER, tmp_path / "backup")
    let_learn(paths, 60)
    restored(paths[0], tmp_path / "backup")
    before = spent(paths[0])
    with FolderWorld(paths) as world:
        assert world[0].node.obstacle == "behind"
    assert spent(paths[0]) == before < UPDATES


def forget_what_was_heard(paths):
    """As if the neighbors had lost their messages."""
    for path in paths:
        with sqlite3.connect(path / STATE_FOLDER / STORE_NAME) as store:
            store.execute("DELETE FROM received")
        store.close()


@pytest.mark.parametrize("what", ["state", "folder"])
def test_a_backup_of_before_the_first_start_spends_nothing(tmp_path, what):
    """Of the whole folder only a freshness file knows that it was started since."""
    paths = network(tmp_path)
    if what == "folder":
        watch(paths[0], tmp_path / "stick" / "agent0.fresh")
    source = paths[0] if what == "folder" else paths[0] / STATE_FOLDER
    shutil.copytree(source, tmp_path / "backup")
    let_learn(paths, 60)
    assert spent(paths[0]) == UPDATES
    shutil.rmtree(source)
    shutil.copytree(tmp_path / "backup", source)
    forget_what_was_heard(paths[1:])
    with FolderWorld(paths) as world:
        world.run(60)
        assert world[0].node.obstacle == "behind"
    assert spent(paths[0]) == 0


def test_a_folder_that_never_ran_may_be_copied_to_its_device(tmp_path):
    paths = network(tmp_path)
    device = copied(paths[0], tmp_path / "device")
    let_learn([device, *paths[1:]], 60)
    assert spent(device) == UPDATES


def test_a_freshness_file_proves_a_copy_to_be_the_newest(tmp_path):
    paths, file = network(tmp_path), tmp_path / "stick" / "agent0.fresh"
    watch(paths[0], file)
    until_one_is_spent(paths)
    moved = copied(paths[0], tmp_path / "elsewhere")
    let_learn([moved, *paths[1:]], 60)
    assert spent(moved) == UPDATES
    # And now the place that it left is the old copy.
    with FolderWorld([paths[0], *paths[1:]]) as world:
        assert world[0].node.obstacle == "behind"
    assert spent(paths[0]) < UPDATES


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_a_freshness_file_sees_what_nothing_else_does(tmp_path, growth):
    """All files are overwritten in place, as if the whole disk were restored."""
    paths, file = network(tmp_path, growth=growth), tmp_path / "stick" / "agent0.fresh"
    watch(paths[0], file)
    until_one_is_spent(paths)
    state = paths[0] / STATE_FOLDER
    backup = {one: one.read_bytes() for one in state.rglob("*") if one.is_file()}
    born = birth_of(state / NAME)
    with FolderWorld(paths) as world:
        world[0].add_data(np.array([[0.2, -0.1, 1.0]]), np.ones(1))
        world.run(60)
    for one, content in backup.items():
        with one.open("r+b") as opened:
            opened.write(content)
            opened.truncate()
    shutil.rmtree(state / "batch1", ignore_errors=True)
    before = spent(paths[0])
    assert birth_of(state / NAME) == born
    with FolderWorld([paths[0]]) as world:
        assert world[0].node.obstacle == "behind"
    assert spent(paths[0]) == before < UPDATES
    assert read_state(state).newer_release == before + 1


def test_a_freshness_file_is_written_before_a_release_leaves(tmp_path):
    """A crash between ledger and file loses nothing; when the file is gone, nothing more is sent."""
    paths, file = network(tmp_path), tmp_path / "stick" / "agent0.fresh"
    watch(paths[0], file)
    until_one_is_spent(paths)
    older = file.read_bytes()
    with FolderWorld(paths) as world:
        while world[0].node.releases == spent(paths[0]) and world[0].node.releases < UPDATES - 1:
            world.run(0.01)
    before = spent(paths[0])
    file.write_bytes(older)  # as if the crash had come before the file was written
    with FolderWorld(paths) as world:
        assert world[0].node.obstacle is None
        file.unlink()
        held = world[0].node.sent.number
        world.run(20)
        assert world[0].node.obstacle == "ledger"
        assert world[0].node.sent.number == held
    assert spent(paths[0]) == before + 1  # charged, and never sent
    with pytest.raises(NetworkError, match=r"agent0\.fresh is missing; bring it back"):
        let_learn(paths)
    assert run("vouch", paths[0]).exit_code == 0
    let_learn(paths, 60)
    assert spent(paths[0]) == UPDATES


def test_a_freshness_file_of_another_agent_is_refused(tmp_path):
    paths, file = network(tmp_path), tmp_path / "stick"
    for path in paths[:2]:
        watch(path, file)
    with pytest.raises(LedgerError, match="is the freshness file of agent 'agent0'"):
        let_learn(paths)


def test_the_start_says_that_a_full_restore_cannot_be_seen(tmp_path):
    paths = network(tmp_path)
    agents = [AgentFolder.read(path) for path in paths]
    words = warning(agents)
    assert words is not None
    assert words.startswith("Private agents without a freshness file: 3. A restore of their whole disk")
    for path in paths:
        watch(path, tmp_path / path.name)
    assert warning([AgentFolder.read(path) for path in paths]) is None
    assert warning([AgentFolder.read(path) for path in network(tmp_path / "open", private=False)]) is None
