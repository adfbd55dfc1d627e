"""MovieLens-100K: finding, fetching and reading it, and the rating task.

Fetching is tested against a real HTTP server on this machine; the rest needs the data set.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import socket
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from flockwise.data import load_movielens, movielens, ratings_task
from flockwise.data.movielens import FILES, _find_or_download, _places
from flockwise.errors import DataError


@pytest.fixture(scope="module")
def data():
    places = [place for place in _places() if (place / "u.data").is_file()]
    if not places:
        pytest.skip("MovieLens-100K is not on this machine; set FLOCKWISE_DATA to the folder with ml-100k/")
    return load_movielens(places[0])


@pytest.fixture(scope="module")
def paper_task(data):
    return ratings_task(data)


def small_zip(**replaced: bytes) -> bytes:
    contents = {name: f"contents of {name}".encode() for name in FILES} | replaced
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"ml-100k/{name}", content)
        archive.writestr("../escaped", b"must never be written")
    return buffer.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server(tmp_path):
    """Serves tmp_path/served; yields that folder and its address."""
    served = tmp_path / "served"
    served.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            pass

    handler = functools.partial(Quiet, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served, f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A machine without the data; returns where its cache would be."""
    monkeypatch.delenv("FLOCKWISE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(movielens, "__file__", str(tmp_path / "tree/src/flockwise/data/movielens.py"))
    return tmp_path / "cache" / "flockwise"


def test_download_puts_the_files_in_the_cache_and_nothing_elsewhere(server, nowhere, tmp_path):
    served, address = server
    (served / "ml-100k.zip").write_bytes(small_zip())
    folder = _find_or_download(f"{address}/ml-100k.zip", sha256(b"contents of u.data"))
    assert folder == nowhere / "ml-100k"
    assert sorted(file.name for file in folder.iterdir()) == sorted(FILES)
    assert (folder / "u.item").read_text() == "contents of u.item"
    assert list(nowhere.iterdir()) == [folder]
    assert not list(tmp_path.rglob("escaped"))
    (served / "ml-100k.zip").unlink()
    assert _find_or_download(f"{address}/ml-100k.zip", sha256(b"contents of u.data")) == folder


def test_a_wrong_hash_leaves_nothing_behind(server, nowhere):
    served, address = server
    (served / "ml-100k.zip").write_bytes(small_zip(**{"u.data": b"tampered"}))
    with pytest.raises(
        DataError, match=f"u.data has SHA-256 {sha256(b'tampered')}, expected .*nothing was kept"
    ):
        _find_or_download(f"{address}/ml-100k.zip", sha256(b"contents of u.data"))
    assert list(nowhere.iterdir()) == []


@pytest.mark.parametrize("content", [b"<html>please log in</html>", small_zip()[:-40]])
def test_a_broken_archive_leaves_nothing_behind(server, nowhere, content):
    served, address = server
    (served / "ml-100k.zip").write_bytes(content)
    with pytest.raises(DataError, match=r"not the expected zip archive.*nothing was kept"):
        _find_or_download(f"{address}/ml-100k.zip", sha256(b"contents of u.data"))
    assert list(nowhere.iterdir()) == []


def test_an_archive_that_is_too_large_is_refused(server, nowhere, monkeypatch):
    served, address = server
    (served / "ml-100k.zip").write_bytes(small_zip())
    monkeypatch.setattr("flockwise.data.movielens.MAX_BYTES", 100)
    with pytest.raises(DataError, match="larger than 100 bytes; nothing was kept"):
        _find_or_download(f"{address}/ml-100k.zip", sha256(b"contents of u.data"))
    assert list(nowhere.iterdir()) == []


def test_a_file_that_is_not_there_any_more(server, nowhere):
    _, address = server
    with pytest.raises(DataError, match=r"could not be fetched \(the server answered 404"):
        _find_or_download(f"{address}/ml-100k.zip", "")
    assert list(nowhere.iterdir()) == []


def test_offline_says_what_to_do(nowhere):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"http://127.0.0.1:{listener.getsockname()[1]}/ml-100k.zip"
    with pytest.raises(DataError) as refusal:
        _find_or_download(closed, "")
    words = str(refusal.value)
    assert f"{closed} could not be fetched" in words
    assert "refused" in words
    assert f"looked in {nowhere.parent.parent}" in words
    assert "set FLOCKWISE_DATA to the folder that holds it" in words
    assert f"or put it at {nowhere / 'ml-100k'}" in words


def test_places_in_their_order(nowhere, tmp_path, monkeypatch):
    monkeypatch.setenv("FLOCKWISE_DATA", str(tmp_path / "mine"))
    shared = tmp_path / "shared" / "data" / "ml-100k"
    assert list(_places()) == [tmp_path / "mine" / "ml-100k", shared, shared, nowhere / "ml-100k"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert list(_places())[-1] == tmp_path / ".cache" / "flockwise" / "ml-100k"


def test_the_environment_variable_is_looked_at_first(nowhere, tmp_path, monkeypatch):
    for place in (tmp_path / "mine" / "ml-100k", tmp_path / "shared" / "data" / "ml-100k"):
        place.mkdir(parents=True)
        (place / "u.data").touch()
    assert _find_or_download("unused:", "") == tmp_path / "shared" / "data" / "ml-100k"
    monkeypatch.setenv("FLOCKWISE_DATA", str(tmp_path / "mine"))
    assert _find_or_download("unused:", "") == tmp_path / "mine" / "ml-100k"


def copy_with(tmp_path: Path, folder: Path, **replaced: bytes | None) -> Path:
    copy = tmp_path / "ml-100k"
    copy.mkdir()
    for name in ("u.data", "u.genre", "u.item", "u.user"):
        content = replaced.get(name.replace(".", "_"), (folder / name).read_bytes())
        if content is not None:
            (copy / name).write_bytes(content)
    return copy


@pytest.fixture
def original(data):
    return next(place for place in _places() if (place / "u.data").is_file())


def test_wherever_it_comes_from_the_hash_is_checked(tmp_path, original):
    content = (original / "u.data").read_bytes()
    changed = copy_with(tmp_path, original, u_data=content.replace(b"\t3\t", b"\t4\t", 1))
    with pytest.raises(DataError, match=r"ml-100k/u.data: SHA-256 is .*expected 06416e59.*remove the folder"):
        load_movielens(changed)


def test_incomplete_or_broken_folders(tmp_path, original):
    with pytest.raises(DataError, match=r"there is no u.data in it; give the folder that"):
        load_movielens(tmp_path)
    incomplete = copy_with(tmp_path, original, u_user=None)
    with pytest.raises(DataError, match=r"u.user missing; unpack the whole of"):
        load_movielens(incomplete)
    (incomplete / "u.user").write_text("1|24|M|technician|85711\n2|53|F\n")
    with pytest.raises(DataError, match=r"u.user, line 2: 3 fields, expected 5"):
        load_movielens(incomplete)
    (incomplete / "u.user").write_text("1|24|M|technician|85711\n")
    with pytest.raises(DataError, match=r"rates users or movies that u.user and u.item do not list"):
        load_movielens(tmp_path)


def test_known_facts_about_the_data(data):
    ratings = data.ratings
    assert (len(ratings), ratings.n_users, ratings.n_movies) == (100_000, 943, 1682)
    counts = np.diff(ratings.offsets)
    assert (counts.min(), counts.max()) == (20, 737)
    assert round(counts.mean()) == 106
    assert np.bincount(ratings.values.astype(int)).tolist() == [0, 6110, 11370, 27145, 34174, 21201]
    assert data.users.ages[:3].tolist() == [24, 53, 23]
    assert data.users.genders[:3] == ("M", "F", "M")
    assert data.users.occupations[0] == "technician"
    assert data.users.zip_codes[0] == "85711"
    assert len(set(data.users.occupations)) == 21
    assert data.movies.titles[0] == "Toy Story (1995)"
    assert data.movies.years[0] == 1995
    assert np.flatnonzero(np.isnan(data.movies.years)).tolist() == [266]
    toy_story = {
        name for name, has in zip(data.movies.genre_names, data.movies.genres[0], strict=True) if has
    }
    assert toy_story == {"Animation", "Children's", "Comedy"}
    # Line 1 of the file: user 196 gave movie 242 three stars.
    assert ratings.values[(ratings.users == 195) & (ratings.movies == 241)].tolist() == [3]


def test_split_is_a_partition_per_user(data):
    train, test = data.split(0.2, seed=1)

    def keys(ratings):
        return ratings.users * 10_000 + ratings.movies

    assert np.array_equal(np.sort(np.concatenate((keys(train), keys(test)))), keys(data.ratings))
    shares = np.diff(test.offsets) / np.diff(data.ratings.offsets)
    assert np.all(np.abs(shares - 0.2) < 0.02)


def test_paper_task_has_consistent_parts(data, paper_task):
    train, test = data.split(0.2, seed=0)
    assert paper_task.train.agent_names == tuple(map(str, range(1, 944)))
    np.testing.assert_array_equal(paper_task.train.features, paper_task.movie_features[train.movies])
    np.testing.assert_allclose(paper_task.train.targets + paper_task.centers[train.users], train.values)
    np.testing.assert_allclose(paper_task.test.targets + paper_task.centers[test.users], test.values)
    means = [paper_task.train.samples(agent)[1].mean() for agent in range(943)]
    np.testing.assert_allclose(means, 0, atol=1e-12)
    matrix = paper_task.rating_matrix
    assert matrix.shape == (943, 1682)
    np.testing.assert_array_equal(matrix.toarray()[train.users, train.movies], paper_task.train.targets)
    assert np.all(matrix.toarray()[test.users, test.movies] == 0)
    assert paper_task.features_private
    assert "943 agents; 20 movie features: weighted-λ ALS" in paper_task.description


@pytest.mark.parametrize("features", ["als", "als_disjoint", "genres"])
def test_test_ratings_have_no_influence(data, features):
    """Turn every held-out rating of the agents around: nothing but test targets may change."""
    before = ratings_task(data, features=features, als_iterations=2)
    agents = np.array([int(name) - 1 for name in before.train.agent_names])
    train, _ = data.split(0.2, seed=0)
    rated = data.ratings
    trained = np.isin(rated.users * 10_000 + rated.movies, train.users * 10_000 + train.movies)
    held_out = ~trained & np.isin(rated.users, agents)
    changed = movielens.MovieLens(
        movielens.Ratings(
            rated.users, rated.movies, np.where(held_out, 6 - rated.values, rated.values), 943, 1682
        ),
        data.users,
        data.movies,
    )
    after = ratings_task(changed, features=features, als_iterations=2)
    np.testing.assert_array_equal(after.movie_features, before.movie_features)
    np.testing.assert_array_equal(after.centers, before.centers)
    np.testing.assert_array_equal(after.train.targets, before.train.targets)
    assert not np.array_equal(after.test.targets, before.test.targets)


def test_disjoint_features_come_from_users_who_are_not_agents(data):
    task = ratings_task(data, features="als_disjoint", als_iterations=2)
    assert task.train.n_agents == 472
    assert task.test.agent_names == task.train.agent_names
    assert len(task.user_profiles) == len(task.centers) == 472
    assert task.rating_matrix.shape == (472, 1682)
    assert not task.features_private
    agents = np.array([int(name) - 1 for name in task.train.agent_names])
    rated = data.ratings
    values = np.where(np.isin(rated.users, agents), 6 - rated.values, rated.values)
    changed = movielens.MovieLens(
        movielens.Ratings(rated.users, rated.movies, values, 943, 1682), data.users, data.movies
    )
    turned = ratings_task(changed, features="als_disjoint", als_iterations=2)
    np.testing.assert_array_equal(turned.movie_features, task.movie_features)
    assert not np.array_equal(turned.train.targets, task.train.targets)


def test_public_task_uses_nothing_private(data):
    task = ratings_task(data, features="genres", centring="public")
    assert set(task.centers) == {3.5}
    assert task.train.feature_names[-2:] == ("year", "intercept")
    assert task.train.n_features == 21
    assert np.all(task.train.features[:, -1] == 1)
    np.testing.assert_array_equal(task.movie_features[:, :19], data.movies.genres)
    assert task.movie_features[266, 19] == 0
    assert abs(np.delete(task.movie_features[:, 19], 266).std() - 1) < 1e-9
    assert not task.features_private


def test_profiles_weigh_age_gender_and_occupation_alike(data, paper_task):
    profiles = paper_task.user_profiles
    assert profiles.shape == (943, len(paper_task.profile_names)) == (943, 23)
    ages = data.users.ages
    technician, other = profiles[0], profiles[1]  # a man of 24 and a woman of 53
    assert np.sum((technician - other)[1:] ** 2) == pytest.approx(1 + 1)
    assert technician[0] - other[0] == pytest.approx((24 - 53) / ages.std())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"features": "plot"}, "features must be one of .*'als', 'als_disjoint', 'genres'.*got 'plot'"),
        ({"centring": "median"}, "centring must be one of .*'user_mean', 'public'.*got 'median'"),
        ({"features": "genres", "dimension": 5}, "has 20 features .* so dimension cannot be 5"),
        ({"test_share": 1.0}, "test_share must lie between 0 and 1"),
    ],
)
def test_features_that_the_task_does_not_have_are_refused(data, arguments, words):
    with pytest.raises(DataError, match=words):
        ratings_task(data, **arguments)


def per_user_rmse(task, penalty: float) -> tuple[float, float]:
    """Mean test RMSE over users of ridge regressions on each one's own ratings, and of their means."""
    ridge, mean = [], []
    for agent in range(task.train.n_agents):
        features, targets = task.train.samples(agent)
        gram = features.T @ features / len(targets) + penalty * np.eye(features.shape[1])
        model = np.linalg.solve(gram, features.T @ targets / len(targets))
        test_features, test_targets = task.test.samples(agent)
        ridge.append(np.sqrt(np.mean((test_features @ model - test_targets) ** 2)))
        mean.append(np.sqrt(np.mean(test_targets**2)))
    return float(np.mean(ridge)), float(np.mean(mean))


def test_local_ridge_regression_reaches_its_known_error(data, paper_task):
    """Known from another implementation: .927 for ridge with λ = .2, 1.013 for the user mean.

    Over 12 seeds this one gives .929 and 1.013 with standard deviations of .006 and .007, so the mean
    of two seeds is further than .015 from the known values in about 1 of 400 pairs.
    """
    errors = [per_user_rmse(task, 0.2) for task in (paper_task, ratings_task(data, seed=1))]
    ridge, mean = np.mean(errors, axis=0)
    assert ridge == pytest.approx(0.927, abs=0.015)
    assert mean == pytest.approx(1.013, abs=0.015)
