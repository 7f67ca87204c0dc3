"""Serves the page of a made-up week, and takes pictures of it in Debian's chromium."""

from __future__ import annotations

import io
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import click
from PIL import Image
from starlette.types import ASGIApp

from bftrainer_slurm.reader.facts import Facts
from bftrainer_slurm.reader.remarks import remarks
from bftrainer_slurm.reader.serving import listener
from bftrainer_slurm.reader.site import site
from scripts.benchkit.command import folder, number
from tests.page.chromium import browser, look, wait_until_drawn
from tests.page.made_up import Week, status_of, write_history
from tests.reader.threads import serve_in_thread

SECRET = "made-up"


def page_of(week: Week, folder: Path) -> ASGIApp:
    """Write a week's history into a folder, and return its page."""
    path = folder / "history.sqlite"
    write_history(week, path)
    facts = Facts(lambda: (0.0, status_of(week)), clock=lambda: week.now_s)
    return site(path, facts, SECRET)


@click.command(context_settings={"show_default": True})
@number("--nodes", 5000, 10, 20_000)
@number("--port", 6742, 0, 65535)
@folder("--screenshots", "screenshots", "Take pictures into this folder, and end.")
def main(nodes: int, port: int, screenshots: Path | None) -> None:
    """Show the controller's page without a cluster: a week of NODES, all of it made up."""
    with tempfile.TemporaryDirectory() as name:
        week = Week(nodes, time.time())
        try:
            listening = listener("127.0.0.1", port)
        except OSError as error:
            raise click.ClickException(f"port {port}: {error.strerror}") from error
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        with serve_in_thread(page_of(week, Path(name)), listening):
            if screenshots is not None:
                _take_pictures(url, screenshots, week)
                return
            click.echo(f"made-up data at {url}, all of it at {url}#key={SECRET}; Ctrl-C ends it")
            with suppress(KeyboardInterrupt):
                threading.Event().wait()


def _take_pictures(url: str, folder: Path, week: Week) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as driver:
        for name, width, height, dark, start in (
            ("page-nodes", 1200, 1250, False, "?span=86400#key=made-up"),
            ("page-dark", 1200, 1250, True, "?span=86400#key=made-up"),
            ("page-phone", 400, 1500, False, "?span=86400#key=made-up"),
            ("page-story", 1200, 1150, False, f"#key=made-up&trainer={_remarkable(week)}"),
        ):
            look(driver, width, height, dark, phone=width < 600)
            driver.get("about:blank")
            driver.get(url + start)
            wait_until_drawn(driver)
            if "trainer" in start:
                driver.execute_script("document.getElementById('story').scrollIntoView()")
            time.sleep(1.5)
            picture = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
            picture.convert("RGB").quantize(256).save(folder / f"{name}.png", optimize=True)
            click.echo(f"{folder / name}.png")


def _remarkable(week: Week) -> int:
    """Return the trainer of which there is most to say, of those that run."""
    running = [one for one in status_of(week)["trainers"] if one["nodes"]]
    return int(max(running, key=lambda one: len(remarks(one, free=0)))["array"])
