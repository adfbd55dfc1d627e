"""How things look in a notebook: a small table of what they are."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """A title and a row for each fact; everything in it is text."""
    cells = (
        f'<tr><th style="text-align:left">{escape(key)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for key, value in rows.items()
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{''.join(cells)}</tbody></table>"
