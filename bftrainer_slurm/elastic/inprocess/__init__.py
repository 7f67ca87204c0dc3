"""Rescaling in process: the trainers, their groups, what ranks have in common, and their data."""
