"""Fuzzing: what parses texts of users and strangers, fed with bytes that nobody would send.

What is fuzzed is in ``catalogue``, what each target promises in ``submissions``, ``strangers`` and
``conversation``, how it is fuzzed in ``campaign``. ``make fuzz`` is the command; the inputs that
are kept are in ``corpus``, and the tests here run them.
"""
