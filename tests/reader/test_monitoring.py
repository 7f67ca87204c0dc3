"""The alerts and the dashboard: Prometheus takes them, and they ask for metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.controller.state.statistics import Counts
from bftrainer_slurm.reader.metrics import families
from tests.reader.test_metrics import KEEPER, one, status

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "docs" / "monitoring"
RULES = FOLDER / "bftrainer.rules.yml"
DASHBOARD = FOLDER / "grafana.json"
OF_PROMETHEUS = {"ALERTS", "up"}


def promtool(*words: str | Path) -> None:
    """Let Prometheus' own tool check something."""
    built = REPOSITORY / "build" / "promtool"
    program = built if built.exists() else shutil.which("promtool")
    assert program, "no promtool: make build/promtool, or apt-get install prometheus"
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def sample_names() -> set[str]:
    """The names of all series that a controller can have."""
    counts = Counts()
    counts.requests["queue"].add(0.1)
    document = status(one("alice"), counts=counts.shown())
    made = families(document, 0.0, KEEPER)
    return {sample.name for family in made for sample in family.samples}


def expressions(found: Any) -> list[str]:
    """All PromQL in a dashboard."""
    if isinstance(found, list):
        return [expression for part in found for expression in expressions(part)]
    if not isinstance(found, dict):
        return []
    own = [found["expr"]] if "expr" in found else []
    return own + expressions(list(found.values()))


def test_the_alerts_fire_where_they_should_and_only_there() -> None:
    promtool("check", "rules", RULES)
    promtool("test", "rules", FOLDER / "bftrainer.rules.test.yml")


def test_each_alert_is_tested() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    tested = (FOLDER / "bftrainer.rules.test.yml").read_text()
    assert alerts
    assert [name for name in alerts if f'{{alertname="{name}"}}' not in tested] == []


def test_prometheus_takes_each_expression_of_the_dashboard(tmp_path: Path) -> None:
    asked = expressions(json.loads(DASHBOARD.read_text()))
    assert len(asked) > 20
    rules = [
        {"record": f"one:{number}", "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(asked)
    ]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", path)


@pytest.mark.parametrize("path", [RULES, DASHBOARD], ids=lambda path: path.name)
def test_each_series_that_is_asked_for_exists(path: Path) -> None:
    wanted = set(re.findall(r"\b(bftrainer_\w+|ALERTS|up)\s*[\[{]", path.read_text()))
    assert wanted
    assert wanted - OF_PROMETHEUS - sample_names() == set()


def test_the_dashboard_has_each_panel_once_and_none_over_another() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: list[tuple[int, int]] = []
    for panel in panels:
        at = panel["gridPos"]
        taken += [
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) == 23
    assert len({panel["id"] for panel in panels}) == len(panels)
