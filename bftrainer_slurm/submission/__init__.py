"""What a submission becomes as a trainer, for the SPANK plugin, cli_filter.lua, and the command.

Standard library only, and from Python 3.9 on: the plugin runs it with the login node's Python.
"""
