"""Reports in a browser: on a desktop, on a phone, in the dark; and what is clicked and typed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.reports.conftest import LONG_NAME

from flockwise.report import verdicts

pytestmark = pytest.mark.reports

DESKTOP, PHONE = 1280, 375
VIEWS = {
    "desktop": (DESKTOP, False),
    "phone": (PHONE, False),
    "dark": (DESKTOP, True),
    "dark phone": (PHONE, True),
}
PAGES = ("report", "reproduction")
LEAST_CONTRAST = 4.5  # of normal text, WCAG 2.2, success criterion 1.4.3

CONTRASTS = """(() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  const background = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = channels(getComputedStyle(each).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
  let count = 0;
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, words = texts.currentNode.textContent.trim();
    if (!words || ["SCRIPT", "STYLE"].includes(element.tagName) || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const color = channels(element.closest("svg") ? style.fill : style.color);
    const [light, dark] = [luminance(color), luminance(background(element))].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    count += 1;
    if (contrast < LEAST) faint.push(`${contrast.toFixed(2)}: ${words.slice(0, 40)}`);
  }
  return [count, faint];
})()"""

COLUMN = """[...document.querySelectorAll('#agents tbody tr')].filter((row) => !row.hidden)
  .map((row) => row.cells[PLACE].textContent.trim())"""


def column(browser, place):
    return browser.run(COLUMN.replace("PLACE", str(place)))


def numbers(texts):
    return [float(text.replace("%", "").replace(",", "")) for text in texts]


@pytest.fixture(params=PAGES)
def any_page(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("view", VIEWS)
def test_a_page_never_overflows_sideways_and_all_its_text_can_be_read(browser, any_page, view):
    width, dark = VIEWS[view]
    browser.open(any_page, width=width, dark=dark)
    _keep_picture(browser, f"{any_page.parent.name}-{view}")
    browser.run("document.querySelectorAll('details').forEach((each) => each.open = true)")
    assert browser.run("document.documentElement.scrollWidth") <= width
    count, faint = browser.run(CONTRASTS.replace("LEAST", str(LEAST_CONTRAST)))
    assert count > 100
    assert faint == []


def _keep_picture(browser, name):
    """For people to look at, where FLOCKWISE_PICTURES names a folder."""
    folder = os.environ.get("FLOCKWISE_PICTURES")
    if folder:
        browser.picture(Path(folder) / f"{name.replace(' ', '-')}.png")


def test_dark_mode_is_dark(browser, report):
    shades = {}
    for dark in (False, True):
        browser.open(report, dark=dark)
        color = browser.run("getComputedStyle(document.body).backgroundColor")
        shades[dark] = sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(","))) / 3
    assert shades[False] > 240
    assert shades[True] < 40


def test_the_light_alone_is_green_and_no_number_below_it(browser, report):
    browser.open(report)
    colors = "[...document.querySelectorAll('.tile b, body')].map((e) => getComputedStyle(e).color)"
    found = browser.run(colors)
    assert len(found) > 1
    assert len(set(found)) == 1


def test_the_first_thing_on_a_phone_is_the_sentence_on_collaboration(browser, report, comparison):
    browser.open(report, width=PHONE, height=667)
    sentence = verdicts(comparison)[0].sentence
    shown = browser.run("document.querySelector('.sentence').textContent")
    assert shown.replace("\u00a0", " ") == sentence
    assert sentence.count(" ± ") == shown.count("\u00a0±\u00a0") == 1  # a gain and its error on one line
    assert browser.run("document.querySelector('.sentence').getBoundingClientRect().bottom") < 667


def test_a_click_on_a_heading_sorts_the_agents_by_it_and_a_second_one_turns_the_order(browser, report):
    browser.open(report)
    heads = browser.run("document.querySelectorAll('#agents thead th').length")
    for place in range(1, heads):
        before = numbers(column(browser, place))
        browser.click(f"#agents thead th:nth-child({place + 1}) button")
        assert numbers(column(browser, place)) == sorted(before)
        browser.click(f"#agents thead th:nth-child({place + 1}) button")
        assert numbers(column(browser, place)) == sorted(before, reverse=True)
    assert browser.run("document.querySelectorAll('#agents [aria-sort=descending]').length") == 1


def test_agents_are_sorted_by_name_as_people_count(browser, report):
    browser.open(report)
    browser.click("#agents thead th:first-child button")
    names = column(browser, 0)
    assert names.index("agent 2") < names.index("agent 10") < names.index(LONG_NAME)


def test_search_leaves_the_agents_whose_name_has_the_words(browser, report):
    browser.open(report)
    assert len(column(browser, 0)) == 40
    browser.type("#agent-search", "AGENT 3")
    assert column(browser, 0) == ["agent 3", *(f"agent {number}" for number in range(30, 40))]
    assert browser.run("document.getElementById('agent-count').textContent") == "11 of 40 agents"


def test_the_table_repeats_what_the_runs_say(browser, report, comparison):
    browser.open(report)
    alone, together = (100 * comparison.agent_scores(name) for name in ("local", "collaborative"))
    shown = [numbers(column(browser, place)) for place in (1, 2, 3, 4)]
    assert shown[0] == comparison.problem.population.sample_counts.tolist()
    assert shown[1] == pytest.approx(alone, abs=0.051)
    assert shown[2] == pytest.approx(together, abs=0.051)
    assert shown[3] == pytest.approx(together - alone, abs=0.051)


def test_the_gain_of_an_agent_stands_right_beside_its_scores(browser, report):
    browser.open(report)
    heads = browser.run("[...document.querySelectorAll('#agents thead button')].map((e) => e.textContent)")
    assert heads[:5] == ["agent", "samples", "alone", "collaborative", "difference"]


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_an_explanation_appears_beside_its_word_and_inside_the_window(browser, report, width):
    browser.open(report, width=width)
    assert not browser.run("document.querySelector('.tip-box').checkVisibility()")
    browser.hover("thead .tip")
    box = "document.querySelector('.tip-box').getBoundingClientRect()"
    left, right = browser.run(f"[{box}.left, {box}.right]")
    assert 0 <= left < right <= width
    assert "test samples" in browser.run("document.querySelector('.tip-box').textContent")


def test_the_page_asks_the_network_for_nothing(browser, any_page):
    browser.open(any_page)
    assert browser.run("performance.getEntriesByType('resource').length") == 0


def test_a_reproduction_shows_pictures_and_verdicts_and_folds_the_rest_away(browser, reproduction):
    browser.open(reproduction)
    assert browser.run("[...document.querySelectorAll('section[id] svg')].every((e) => e.checkVisibility())")
    assert not browser.run(
        "[...document.querySelectorAll('section[id] table')].some((e) => e.checkVisibility())"
    )
    browser.click("section[id] summary")
    assert browser.run("document.querySelector('section[id] table').checkVisibility()")


def test_verdicts_of_a_quick_run_are_marked_as_provisional_and_those_of_a_full_run_are_not(
    browser, reproduction
):
    browser.open(reproduction)
    marked = """[...document.querySelectorAll('section[id]')].map((section) =>
        [...section.querySelectorAll('td.verdict')].map((cell) => /provisional/.test(cell.textContent)))"""
    quick, *full = browser.run(marked)
    assert quick
    assert all(quick)
    assert not any(map(any, full))
    claims = """[...document.querySelectorAll('.claims li')].map((claim) =>
        [claim.querySelector('a').hash, claim.textContent.includes('provisional')])"""
    assert "provisional" in browser.run("document.querySelector('section h2').textContent")
    first = browser.run("'#' + document.querySelector('section[id]').id")
    assert {where for where, provisional in browser.run(claims) if provisional} == {first}
