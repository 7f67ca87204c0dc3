"""Callbacks for frameworks, a module each, which alone imports its framework."""
