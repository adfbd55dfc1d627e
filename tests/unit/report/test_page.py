"""report.html is complete in itself and says what has to be said."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from flockwise.graph import random_graph
from flockwise.objective import Problem
from flockwise.report import NOT_PRIVATE, Comparison, Page, pictures
from flockwise.results.tuning import TradeoffChoice, TradeoffScore

LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "poster"}
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Elements(HTMLParser):
    """What a page would load, its ids, its visible words, and whether its tags are balanced."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.ids, self.words, self.open, self.tags = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._note(attrs)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self._note(attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def _note(self, attrs):
        self.loaded += [value for name, value in attrs if name in LOADING]
        self.ids += [value for name, value in attrs if name == "id"]


@pytest.fixture(scope="module")
def page(comparison):
    scores = tuple(TradeoffScore(value, value / 10, (value / 10,), 0.25) for value in (1.0, 2.0, 3.0))
    return Page(
        title="Agents <b>&</b> models",
        comparison=comparison,
        data_description="Made up",
        settings={"data": {"source": "synthetic", "rotated": False, "columns": ["a", "b"]}},
        version="1.2.3",
        choice=TradeoffChoice(3.0, "log loss", scores, 0.25),
        choice_description="On validation data.",
    )


@pytest.fixture(scope="module")
def text(page, task):
    return page.render(pictures(page.comparison, task.targets))


def test_the_page_loads_nothing(text):
    elements = Elements(text)
    assert all(value.startswith(("#", "data:image/png;base64,")) for value in elements.loaded)
    assert not {"link", "iframe", "object", "embed", "img"} & set(elements.tags)
    assert all(place.startswith("#") for place in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text


def test_the_page_is_well_formed(text):
    elements = Elements(text)
    assert elements.open == []
    assert len(elements.ids) == len(set(elements.ids))
    used = set(re.findall(r'(?:url\(|href=")#([\w.:-]+)', text))
    assert used <= set(elements.ids)


def test_the_page_says_what_has_to_be_said(text):
    words = " ".join(" ".join(Elements(text).words).split())
    assert NOT_PRIVATE == "Not differentially private: this run has privacy = none."
    assert NOT_PRIVATE in words
    assert "derived from private data" in words
    assert "one beyond may be better" in words
    for shown in (
        "collaborative",
        "updates per agent",
        "14 agents",
        "Flockwise 1.2.3",
        '["a", "b"]',
        "false",
    ):
        assert shown in words


def test_what_users_wrote_cannot_become_markup(text):
    assert "<title>Agents &lt;b&gt;&amp;&lt;/b&gt; models</title>" in text


def test_pictures_follow_the_colours_of_the_page(text):
    svg = text[text.index("<svg") : text.rindex("</svg>")]
    assert "currentColor" in svg
    assert "var(--faint)" in svg


def test_a_public_graph_is_called_public(page, task):
    public = Comparison(Problem(task.train, random_graph(14, 4, 0)), page.comparison.runs)
    text = Page("t", public, "d", {}, "1").render([])
    assert "derived from private data" not in text
    assert "is taken as public" in text


def test_writing_leaves_no_other_file(page, tmp_path):
    page.write(tmp_path / "report.html", [])
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
