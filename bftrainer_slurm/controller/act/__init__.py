"""Carrying out what was decided."""
