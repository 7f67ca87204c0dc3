"""Replays: traces of holes, a simulated cluster, and figures of what trainers harvest there."""
