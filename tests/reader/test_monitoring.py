"""The alerts and the dashboard: Prometheus takes them, and they ask for metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bftrainer_slurm.reader.metrics import families
from scripts.labcluster.stage import REPO
from tests.reader.test_metrics import KEEPER, SHARED

FOLDER = REPO / "docs" / "monitoring"
RULES = FOLDER / "bftrainer.rules.yml"
DASHBOARD = FOLDER / "grafana.json"


def promtool(*words: str | Path) -> None:
    """Let Prometheus' own tool check something."""
    built = REPO / "build" / "promtool"
    program = built if built.exists() else shutil.which("promtool")
    assert program, "no promtool: make build/promtool, or apt-get install prometheus"
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_where_it_should_and_only_there() -> None:
    promtool("check", "rules", RULES)
    promtool("test", "rules", FOLDER / "bftrainer.rules.test.yml")
    tested = (FOLDER / "bftrainer.rules.test.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert alerts
    assert [name for name in alerts if f'{{alertname="{name}"}}' not in tested] == []


def test_prometheus_takes_each_expression_of_the_dashboard(tmp_path: Path) -> None:
    asked: list[str] = []
    json.loads(DASHBOARD.read_text(), object_hook=lambda one: asked.append(one.get("expr", "")))
    asked = [one for one in asked if one]
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
    there = {sample.name for one in families(SHARED, 0.0, KEEPER) for sample in one.samples}
    assert wanted
    assert wanted - {"ALERTS", "up"} - there == set()
