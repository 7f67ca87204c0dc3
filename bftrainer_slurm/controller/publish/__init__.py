"""Builds what users and admins see."""
