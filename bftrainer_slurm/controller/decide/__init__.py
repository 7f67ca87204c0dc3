"""Turns snapshot and state into actions. Pure."""
