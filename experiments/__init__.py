"""One file per figure and table of the paper, behind `flockwise reproduce NAME`; see README.md."""

from __future__ import annotations

# In the order of the paper, then the proofs, then what goes beyond it.
NAMES = ("fig1", "fig2a", "fig2b", "fig2c", "fig3", "fig4", "table1", "prop1", "thm2", "scaling")
