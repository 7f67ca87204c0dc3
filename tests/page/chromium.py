"""Debian's chromium without a screen, driven by selenium; knows when the page is drawn."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.support.ui import WebDriverWait

_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--lang=en"),
)

PATIENCE_S = 300.0  # with a machine that others use as well


@contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Chrome]:
    """Start a chromium without a screen, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        options = ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for option in (*_OPTIONS, f"--user-data-dir={folder}", f"--window-size={width},{height}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = Chrome(options, ChromeService("/usr/bin/chromedriver"))
        try:
            yield driver
        finally:
            driver.quit()


def look(driver: Chrome, width: int, height: int, dark: bool, phone: bool = False) -> None:
    """Make it a screen of this size, light or dark."""
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def wait_until_drawn(driver: Chrome) -> None:
    """Wait until all sections of the page are filled."""
    WebDriverWait(driver, PATIENCE_S).until(
        lambda page: page.execute_script(
            "return ['#tiles dt', '#trainer-list table, #trainer-list p', '#legend li', "
            "'#pool-chart canvas', '#delay-table tr', '#harvest-table tr']"
            ".every((found) => document.querySelector(found))"
        )
    )
