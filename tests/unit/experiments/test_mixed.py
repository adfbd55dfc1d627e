"""docs/mixed-models.md as it is committed, and how near a mixed model as it comes is to the references."""

import json
from pathlib import Path

import pytest
from experiments.mixed import LARGE, NUMERIC, SPLITS, SPLITS_OF_LARGE, excess, table

DOCS = Path(__file__).parents[3] / "docs"
NUMBERS = DOCS / "mixed-models"


def splits_of(name):
    return json.loads((NUMBERS / f"{name}.json").read_text(encoding="utf-8"))["splits"]


def test_the_table_is_what_the_numbers_of_the_splits_tell():
    assert table(NUMBERS) in (DOCS / "mixed-models.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NUMERIC)
def test_errors_are_within_three_tenths_of_a_percent_of_the_references(name):
    splits = splits_of(name)
    assert len(splits) == (SPLITS_OF_LARGE if name in LARGE else SPLITS)
    assert excess(splits, "em")[0] <= 0.003
    converged = [split for split in splits if split["mixed_lm"] is not None]
    if name not in LARGE:
        assert len(converged) >= 0.8 * SPLITS
        assert excess(converged, "mixed_lm")[0] <= 0.003
