"""Rescaling in process: the trainers, their groups, their shared state, and their data."""
