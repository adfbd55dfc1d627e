"""Makes rooms.csv and profiles.csv: how warm 16 rooms get, and which floor and side they are on.

Each room answers to the weather and to its heating in its own way; rooms on one side of the house
share the sun, rooms on one floor the heating. Each has been measured a few times only.

    python examples/make_rooms.py
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

FLOORS, SIDES = 4, ("north", "east", "south", "west")
SUN = {"north": 0.3, "east": 1.2, "south": 2.5, "west": 1.6}


def main() -> None:
    generator = np.random.default_rng(1)
    samples, profiles = [], []
    for floor in range(FLOORS):
        for side in SIDES:
            room = f"{floor}-{side}"
            profiles.append((room, floor, side))
            own = np.array([0.5, SUN[side], 1.0 + 0.5 * floor, 0.4]) + generator.normal(0, 0.1, 4)
            for _ in range(generator.integers(4, 16)):
                weather = generator.normal(size=4).round(2)
                warmth = weather @ own + 0.2 * floor + generator.normal(0, 0.8)
                samples.append((room, *weather.tolist(), round(float(warmth), 2)))
    folder = Path(__file__).parent
    _write(folder / "rooms.csv", ("room", "outside", "sun", "heating", "people", "warmth"), samples)
    _write(folder / "profiles.csv", ("room", "floor", "side"), profiles)


def _write(path: Path, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
