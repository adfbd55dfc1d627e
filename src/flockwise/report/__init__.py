"""Pictures and the self-contained page of a run."""

from flockwise.report.comparison import Comparison, Row
from flockwise.report.page import NOT_PRIVATE, Page
from flockwise.report.plots import pictures
from flockwise.report.theme import Picture, inline_svg, save_picture

__all__ = ["NOT_PRIVATE", "Comparison", "Page", "Picture", "Row", "inline_svg", "pictures", "save_picture"]
