"""The page as people see it: in Debian's chromium, on a made-up half day of 5,000 nodes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from bftrainer_slurm.reader.facts import RequestError
from bftrainer_slurm.reader.questions import Questions
from tests.page.chromium import PATIENCE_S, browser, look, wait_until_drawn
from tests.page.command import SECRET, page_of
from tests.page.made_up import Week
from tests.reader.threads import served

Opened: TypeAlias = Callable[..., Chrome]
HOSTILE = "<img src=x onerror=alert(1)>\u202e&amp;\"'"


@pytest.fixture(scope="module")
def large() -> Week:
    week = Week(nodes=5000, now_s=time.time(), days=0.5)
    for one in week.trainers:
        one.name = HOSTILE
    return week


@pytest.fixture(scope="module")
def url(large: Week, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(page_of(large, tmp_path_factory.mktemp("large"))) as (host, port):
        yield f"http://{host}:{port}/"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chrome]:
    with browser() as driver:
        yield driver


@pytest.fixture
def opened(chromium: Chrome, url: str) -> Opened:
    """The page on a screen of some size, after all of it is drawn."""

    def opens(width: int = 1200, dark: bool = False, behind: str = "") -> Chrome:
        look(chromium, width, 900, dark, phone=width < 600)
        chromium.get("about:blank")
        chromium.get(url + behind)
        wait_until_drawn(chromium)
        return chromium

    return opens


def found(page: Chrome, what: str) -> WebElement:
    return page.find_element(By.CSS_SELECTOR, what)


def press(page: Chrome, what: str) -> None:
    """Press a button, which the page may be making anew just now."""
    page.execute_script(f"document.querySelector('{what}').click()")


def wait(page: Chrome, until: Callable[[], Any]) -> None:
    """Wait for something; the page may be making anew what is looked at."""
    passing = (NoSuchElementException, StaleElementReferenceException)
    WebDriverWait(page, PATIENCE_S, ignored_exceptions=passing).until(lambda _: until())


def test_all_of_the_page_is_drawn_without_a_complaint(opened: Opened) -> None:
    page = opened(behind=f"#key={SECRET}")
    wait(page, lambda: "5,000 of 5,000 nodes, 20 in a row" in found(page, "#shown").text)
    assert found(page, "#about").text == "made-up data, partition bftrainer"
    wait(page, lambda: re.fullmatch(r"; updated \d+ s ago", found(page, "#updated").text))
    assert not found(page, "#trouble").is_displayed()
    colors = page.execute_script(
        "const map = document.querySelector('#map canvas');"
        "const all = map.getContext('2d').getImageData(90, 0, map.width - 90, 300).data;"
        "const seen = new Set();"
        "for (let n = 0; n < all.length; n += 4) seen.add(`${all[n]} ${all[n + 1]} ${all[n + 2]}`);"
        "return [...seen]"
    )
    assert "185 193 207" in colors, "ordinary jobs"
    assert len(colors) > 10
    complaints = [one for one in page.get_log("browser") if one["source"] != "network"]
    assert complaints == []


def test_what_is_not_answered_is_said_and_asked_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, answer = ["harvest", "nodes"], Questions.answer

    def answered(questions: Questions, version: str, name: str, *more: str) -> bytes:
        if name in refused:
            refused.remove(name)
            raise RequestError("not now", 503)
        return answer(questions, version, name, *more)

    monkeypatch.setattr(Questions, "answer", answered)
    page = opened()  # which waits until all of it is drawn
    assert refused == []
    before = found(page, "#shown").text
    refused.append("nodes")
    press(page, "#spans button")
    wait(page, lambda: found(page, "#shown").text != before)
    assert refused == []


def test_a_key_is_taken_from_the_address_and_shows_ones_own_and_no_name_is_run(
    opened: Opened, large: Week
) -> None:
    one = next(one for one in large.trainers if one.now)
    page = opened(behind=f"#trainer={one.array}&key={SECRET}")
    wait(page, lambda: found(page, "#story .notes li").is_displayed())
    assert SECRET not in page.current_url
    wait(page, lambda: "You see everything." in found(page, "#who").text)
    wait(page, lambda: "worth" in found(page, "#story table caption").text)
    wait(page, lambda: "<img src=x onerror=alert(1)>" in found(page, "#story-title").text)
    press(page, "#trainer-list button.link")
    wait(page, lambda: "<img src=x onerror=alert(1)>" in found(page, "#story-title").text)
    assert page.find_elements(By.TAG_NAME, "img") == []


def test_dragging_over_the_map_zooms_in_on_times_and_nodes(opened: Opened) -> None:
    page = opened()
    canvas = found(page, "#map canvas")
    page.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", canvas
    )
    ActionChains(page).move_to_element_with_offset(
        canvas, 100, -100
    ).click_and_hold().move_by_offset(200, 60).release().perform()
    wait(page, lambda: "5,000 of 5,000" not in found(page, "#shown").text)
    shown = re.search(r"([\d,]+) of 5,000 nodes", found(page, "#shown").text)
    assert shown
    assert 500 < int(shown[1].replace(",", "")) < 1500
    press(page, "#back")
    wait(page, lambda: "5,000 of 5,000" in found(page, "#shown").text)


def test_the_map_is_read_and_zoomed_with_the_keyboard(opened: Opened) -> None:
    page = opened()
    canvas = found(page, "#map canvas")
    page.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys(Keys.ARROW_DOWN)
    wait(page, lambda: re.match(r"n\d+ to n\d+, ", found(page, "#readout").text))
    before = found(page, "#readout").text
    canvas.send_keys(Keys.ARROW_DOWN)
    wait(page, lambda: found(page, "#readout").text != before)
    canvas.send_keys(Keys.ENTER)
    wait(page, lambda: "5,000 of 5,000" not in found(page, "#shown").text)
    canvas.send_keys(Keys.ESCAPE)
    wait(page, lambda: "5,000 of 5,000" in found(page, "#shown").text)


def test_buttons_choose_the_time_and_the_address_says_what_is_shown(
    opened: Opened, large: Week
) -> None:
    one = next(one for one in large.trainers if one.now)
    page = opened(behind=f"?span=3600&to={int(large.now_s) - 3600}&trainer={one.array}&sort=user")
    wait(page, lambda: str(one.array) in found(page, "#story-title").text)
    assert found(page, "#later").is_enabled()
    press(page, "#spans button:nth-child(3)")
    pressed = "#spans button:nth-child(3)[aria-pressed=true]"
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, pressed))
    wait(page, lambda: f"?span=86400&trainer={one.array}&sort=user" in page.current_url)
    press(page, "#earlier")
    wait(page, lambda: found(page, "#later").is_enabled())
    page.back()
    wait(page, lambda: "&to=" not in page.current_url)
    page.back()
    wait(page, lambda: "span=3600" in page.current_url and found(page, "#later").is_enabled())


def test_the_list_shows_one_users_trainers_and_is_saved_as_csv(opened: Opened, large: Week) -> None:
    user = next(one.user for one in large.trainers if one.now)
    page = opened(behind=f"?show={user}")
    users = "#trainer-list td[data-label=User]"
    wait(page, lambda: {one.text for one in page.find_elements(By.CSS_SELECTOR, users)} == {user})
    page.execute_script(
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text }); "
        "return '#' }"
    )
    press(page, "#trainer-list caption button")
    wait(page, lambda: page.execute_script("return window.saved"))
    heads, first, *_ = page.execute_script("return window.saved").split("\r\n")
    assert heads.startswith('"Trainer","User","State","Nodes"')
    assert HOSTILE.replace('"', '""') in first


def test_nothing_is_wider_than_the_screen(opened: Opened) -> None:
    page = opened(320)
    for width in (320, 390, 800, 1200):
        look(page, width, 900, dark=False, phone=width < 600)
        fits = f"return document.documentElement.scrollWidth <= {width}"
        wait(page, partial(page.execute_script, fits))


def test_it_is_dark_where_the_reader_wants_it_so(opened: Opened) -> None:
    page = opened(dark=True)
    color = found(page, "body").value_of_css_property("background-color")
    assert sum(int(part) for part in re.findall(r"\d+", color)[:3]) < 150


def test_everything_has_a_name_and_charts_have_tables(opened: Opened) -> None:
    page = opened()
    parts = "button, nav a, canvas[tabindex], section, .chart, .wide"

    def nameless() -> list[str | None]:
        shown = (one for one in page.find_elements(By.CSS_SELECTOR, parts) if one.is_displayed())
        return [one.get_attribute("outerHTML") for one in shown if not one.accessible_name]

    wait(page, lambda: nameless() == [])
    for section in ("nodes", "delays", "harvest"):
        assert page.find_elements(By.CSS_SELECTOR, f"#{section} details table caption")
    assert page.find_elements(By.CSS_SELECTOR, "table:not(.u-legend, :has(caption))") == []
    assert found(page, "html").get_attribute("lang") == "en"
    assert [one.tag_name for one in page.find_elements(By.CSS_SELECTOR, "h1")] == ["h1"]
