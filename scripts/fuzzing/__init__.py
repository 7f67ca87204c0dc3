"""Fuzzing: what parses texts of users and strangers, fed with bytes that nobody would send.

What is fuzzed is in ``catalogue``; how, in ``command``. The inputs kept are in ``tests/fuzz``.
"""
