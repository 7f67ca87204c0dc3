"""Callbacks for frameworks: one module for each, and only that module imports the framework."""
