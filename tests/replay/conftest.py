"""One planner for all replays."""

from tests.planner.conftest import planner as planner
