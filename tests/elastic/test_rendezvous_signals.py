from __future__ import annotations

import multiprocessing
import os
import signal
import threading

from bftrainer_slurm.elastic.signals import on_signals


def test_a_signal_is_heard_beside_a_handler_that_is_installed_later() -> None:
    heard, handled = threading.Event(), threading.Event()
    on_signals({signal.SIGUSR1}, heard.set)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: handled.set())
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard.wait(120)
        assert handled.wait(120)
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.set_wakeup_fd(-1)


def test_other_signals_are_passed_over() -> None:
    heard, handled = threading.Event(), threading.Event()
    on_signals({signal.SIGUSR1}, heard.set)
    before = signal.signal(signal.SIGUSR2, lambda number, frame: handled.set())
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert handled.wait(120)
        assert not heard.wait(0.2)
    finally:
        signal.signal(signal.SIGUSR2, before)
        signal.set_wakeup_fd(-1)


def test_a_signal_to_a_forked_process_is_not_for_the_one_that_it_was_forked_from() -> None:
    heard = threading.Event()
    on_signals({signal.SIGUSR1}, heard.set)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        child = multiprocessing.get_context("fork").Process(
            target=lambda: os.kill(os.getpid(), signal.SIGUSR1)
        )
        child.start()
        child.join()
        assert child.exitcode == 0
        assert not heard.wait(0.5)
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.set_wakeup_fd(-1)
