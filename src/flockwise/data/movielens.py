"""MovieLens-100K: 943 people's ratings of 1682 movies, with who they are and what the movies are.

The data belongs to GroupLens and is not part of this package; its README gives the terms of use.
F. M. Harper and J. A. Konstan, The MovieLens Datasets, ACM TiiS 5(4), 2015.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import re
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.data.population import held_out_rows
from flockwise.errors import DataError

URL = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
RATINGS_SHA256 = "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490"
FOLDER = "ml-100k"
# Far above what the archive or a file in it has, far below what fills a disk or the memory.
MAX_BYTES = 64 * 2**20
FILES = ("README", "u.data", "u.genre", "u.item", "u.occupation", "u.user")
YEAR_IN_TITLE = re.compile(r"\((\d{4})\)")


@dataclass(frozen=True, eq=False)
class Ratings:
    """Users, movies and ratings, sorted by user and movie; users and movies count from 0."""

    users: NDArray[np.int64]
    movies: NDArray[np.int64]
    values: Floats
    n_users: int
    n_movies: int

    def __len__(self) -> int:
        return len(self.values)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """User i's ratings are entries offsets[i]:offsets[i + 1]."""
        counts = np.bincount(self.users, minlength=self.n_users)
        return np.concatenate(([0], np.cumsum(counts)))

    def select(self, rows: NDArray[np.bool_]) -> Ratings:
        return Ratings(self.users[rows], self.movies[rows], self.values[rows], self.n_users, self.n_movies)


@dataclass(frozen=True, eq=False)
class Users:
    """The profiles of the users."""

    ages: NDArray[np.int64]
    genders: tuple[str, ...]
    occupations: tuple[str, ...]
    zip_codes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Movies:
    """Title, year (NaN for the one movie without) and genres (n_movies, n_genres) of each movie."""

    titles: tuple[str, ...]
    years: Floats
    genres: NDArray[np.bool_]
    genre_names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class MovieLens:
    """The whole data set, as `load_movielens` reads it."""

    ratings: Ratings
    users: Users
    movies: Movies

    def split(self, test_share: float = 0.2, seed: int = 0) -> tuple[Ratings, Ratings]:
        """Train and test ratings, drawn at random from those of each user."""
        held_out = held_out_rows(self.ratings.offsets, test_share, seed)
        return self.ratings.select(~held_out), self.ratings.select(held_out)


def load_movielens(path: str | os.PathLike[str] | None = None) -> MovieLens:
    """MovieLens-100K from `path` or from the first of these places that has it.

    1. ml-100k/ in the folder that the environment variable FLOCKWISE_DATA names,
    2. ../shared/data/ml-100k, seen from the working directory or from the source tree,
    3. the user's cache (~/.cache/flockwise/ml-100k, or under XDG_CACHE_HOME), into which it is
       downloaded from GroupLens when it is in none of them.

    The ratings must have the published SHA-256, wherever they come from.
    """
    folder = _given_folder(Path(path)) if path is not None else _find_or_download(URL, RATINGS_SHA256)
    _check_complete(folder)
    found = _sha256(folder / "u.data")
    if found != RATINGS_SHA256:
        raise DataError(
            f"{folder / 'u.data'}: SHA-256 is {found}, expected {RATINGS_SHA256}; "
            f"this is not MovieLens-100K as published: remove the folder and get {URL} again"
        )
    return _read(folder)


def _given_folder(path: Path) -> Path:
    for folder in (path, path / FOLDER):
        if (folder / "u.data").is_file():
            return folder
    raise DataError(f"{path}: there is no u.data in it; give the folder that {URL} unpacks to")


def _find_or_download(url: str, sha256: str) -> Path:
    places = list(dict.fromkeys(_places()))
    for folder in places:
        if (folder / "u.data").is_file():
            return folder
    cache = places[-1]
    try:
        _download(url, cache, sha256)
    except OSError as error:
        looked = ", ".join(str(place) for place in places)
        raise DataError(
            f"MovieLens-100K is not on this machine (looked in {looked}) and {url} could not be fetched "
            f"({error}). Unpack that file on a connected machine, copy its folder {FOLDER} here, and set "
            f"FLOCKWISE_DATA to the folder that holds it, or put it at {cache}"
        ) from error
    return cache


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _download(url: str, folder: Path, sha256: str) -> None:
    """Put the files of the zip at `url` into `folder`: all of them, or nothing.

    They are written to a temporary folder beside the wanted one, which appears by a single rename once the
    ratings have their hash. A network that fails raises OSError, an archive that is not the expected one
    DataError.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    archive = _fetch(url)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        unpacked = Path(scratch, folder.name)
        unpacked.mkdir()
        try:
            with zipfile.ZipFile(io.BytesIO(archive)) as opened:
                # Only these files, each under a name of our choosing: no path of the archive is used.
                for name in FILES:
                    with opened.open(f"{folder.name}/{name}") as member:
                        (unpacked / name).write_bytes(_limited(member, url))
        except (zipfile.BadZipFile, KeyError, EOFError, zlib.error) as error:
            raise DataError(f"{url}: not the expected zip archive ({error}); nothing was kept") from error
        found = _sha256(unpacked / "u.data")
        if found != sha256:
            raise DataError(
                f"{url}: u.data has SHA-256 {found}, expected {sha256}; nothing was kept. "
                "Download it again, or from another network"
            )
        _put_in_place(unpacked, folder)


def _fetch(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=30.0) as response:
            return _limited(response, url)
    except urllib.error.HTTPError as error:
        with error:  # It is an open response as well.
            raise ConnectionError(f"the server answered {error.code} {error.reason}") from None
    except http.client.HTTPException as error:
        raise ConnectionError(f"the server broke off: {error!r}") from error


def _limited(source: IO[bytes], url: str) -> bytes:
    content = source.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise DataError(f"{url}: larger than {MAX_BYTES} bytes; nothing was kept")
    return content


def _put_in_place(unpacked: Path, folder: Path) -> None:
    try:
        os.rename(unpacked, folder)
    except OSError:
        # Another process may have put the same verified files there in the meantime.
        if not folder.is_dir() or not all((folder / file.name).is_file() for file in unpacked.iterdir()):
            raise
        shutil.rmtree(unpacked)


def _places() -> Iterator[Path]:
    """Where the data may be, the place to download to last."""
    if os.environ.get("FLOCKWISE_DATA"):
        yield Path(os.environ["FLOCKWISE_DATA"], FOLDER)
    source_tree = Path(__file__).resolve().parents[3]
    for start in (Path.cwd(), source_tree):
        yield start.parent / "shared" / "data" / FOLDER
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    yield Path(caches, "flockwise", FOLDER)


def _check_complete(folder: Path) -> None:
    missing = [name for name in ("u.data", "u.genre", "u.item", "u.user") if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder}: {', '.join(missing)} missing; unpack the whole of {URL}")


def _read(folder: Path) -> MovieLens:
    users = _read_users(folder / "u.user")
    movies = _read_movies(folder / "u.item", folder / "u.genre")
    ratings = _read_ratings(folder / "u.data", len(users.ages), len(movies.titles))
    return MovieLens(ratings, users, movies)


def _read_ratings(file: Path, n_users: int, n_movies: int) -> Ratings:
    table = np.loadtxt(file, dtype=np.int64, usecols=(0, 1, 2))
    users, movies, values = table[np.lexsort((table[:, 1], table[:, 0]))].T
    if users.max() > n_users or movies.max() > n_movies:
        raise DataError(f"{file}: rates users or movies that u.user and u.item do not list; get {URL} again")
    return Ratings(users - 1, movies - 1, values.astype(np.float64), n_users, n_movies)


def _read_users(file: Path) -> Users:
    _, ages, genders, occupations, zip_codes = zip(*_records(file, 5), strict=True)
    return Users(np.array(ages, dtype=np.int64), genders, occupations, zip_codes)


def _read_movies(items: Path, genre_list: Path) -> Movies:
    genre_names = tuple(name for name, _ in _records(genre_list, 2))
    records = list(_records(items, 5 + len(genre_names)))
    return Movies(
        titles=tuple(record[1] for record in records),
        years=np.array([_year(title=record[1], released=record[2]) for record in records]),
        genres=np.array([[flag == "1" for flag in record[5:]] for record in records]),
        genre_names=genre_names,
    )


def _year(title: str, released: str) -> float:
    """The year in the title, which is the movie's; else that of its release in the United States."""
    in_title = YEAR_IN_TITLE.findall(title)
    if in_title:
        return float(in_title[-1])
    return float(released[-4:]) if released else float("nan")


def _records(file: Path, n_fields: int) -> Iterator[list[str]]:
    """The lines of a file of the archive, cut at '|'; they are in ISO 8859-1 and ordered by number."""
    for number, line in enumerate(file.read_text(encoding="latin-1").splitlines(), start=1):
        if not line:
            continue
        fields = line.split("|")
        if len(fields) != n_fields:
            raise DataError(
                f"{file}, line {number}: {len(fields)} fields, expected {n_fields}; get {URL} again"
            )
        yield fields
