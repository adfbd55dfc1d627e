"""Pictures and the self-contained page of a run."""

from flockwise.report.comparison import Comparison, Row
from flockwise.report.page import NOT_PRIVATE, Page
from flockwise.report.plots import pictures
from flockwise.report.theme import Picture, inline_svg, save_picture
from flockwise.report.verdict import Gain, Verdict, promise, verdicts

__all__ = [
    "NOT_PRIVATE",
    "Comparison",
    "Gain",
    "Page",
    "Picture",
    "Row",
    "Verdict",
    "inline_svg",
    "pictures",
    "promise",
    "save_picture",
    "verdicts",
]
