"""One file per figure and table of the paper, behind `flockwise reproduce NAME`; see README.md."""

from __future__ import annotations

# In the order of the paper, then the proofs, then what goes beyond it.
NAMES = (
    "fig1",
    "fig1_paper",
    "fig2a",
    "fig2b",
    "fig2c",
    "fig2c_paper",
    "larger_box",
    "fig3",
    "fig4",
    "table1",
    "table1_paper",
    "prop1",
    "thm2",
    "text",
    "scaling",
)
# What the package adds to the paper, with pages of their own; "all" leaves it out.
BEYOND = ("prior", "planner")
