"""Carrying out decisions."""
