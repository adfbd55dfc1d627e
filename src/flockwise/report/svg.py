"""Figures as SVG: whole files, and pieces that take the colours of the page they stand in."""

from __future__ import annotations

import io
import re
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from flockwise.files import write_whole
from flockwise.report.plots import Picture
from flockwise.report.theme import FAINT, INK

PIXELS_PER_INCH = 200  # of what is drawn as pixels inside


def save_picture(picture: Picture, folder: Path) -> Path:
    """A file of its own, on white, that looks the same in every program."""
    path = folder / f"{picture.name}.svg"
    text = _svg(picture.figure, picture.name, "path", transparent=False)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path


def inline_svg(picture: Picture) -> str:
    """An <svg> element for a page: its text is text, and it follows the page from light to dark."""
    text = _svg(picture.figure, picture.name, "none", transparent=True)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace(INK, "currentColor").replace(FAINT, "var(--faint)")
    return _label(_drop_unused_ids(text), picture.title)


def _svg(figure: Figure, name: str, fonttype: str, *, transparent: bool) -> str:
    buffer = io.StringIO()
    # The same figure gives the same bytes, and ids differ between figures of one page.
    with matplotlib.rc_context({"svg.fonttype": fonttype, "svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", dpi=PIXELS_PER_INCH, transparent=transparent, metadata={"Date": None}
        )
    return buffer.getvalue()


def _drop_unused_ids(text: str) -> str:
    """Ids such as "axes_1" are in every figure, but an id may occur only once in a page."""
    used = set(re.findall(r"#([\w.:-]+)", text))
    return re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", text)


def _label(text: str, title: str) -> str:
    words = title.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    # Sized by the page, so that the width and height in points have to go.
    opening = re.sub(r' (width|height)="[^"]*"', "", text[: text.index(">")])
    return f'{opening} role="img" aria-label="{words}"{text[text.index(">") :]}'
