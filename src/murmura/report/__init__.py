"""Pictures and the self-contained page of a run."""

from murmura.report.comparison import Comparison, Row
from murmura.report.page import NOT_PRIVATE, Page
from murmura.report.plots import Picture, pictures
from murmura.report.svg import inline_svg, save_picture

__all__ = ["NOT_PRIVATE", "Comparison", "Page", "Picture", "Row", "inline_svg", "pictures", "save_picture"]
