"""Executes decisions."""
