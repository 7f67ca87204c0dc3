"""Trainers in containers."""
