"""Ctrl-C and SIGTERM: at once while there is nothing to save, noted while there is."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager

import pytest

from clearhead.training.signals import StopSignals

ENDS = {signal.SIGINT: (KeyboardInterrupt, ()), signal.SIGTERM: (SystemExit, (143,))}


@contextmanager
def ended_by(number):
    """Require that the block ends as the signal asks for."""
    kind, arguments = ENDS[number]
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.args == arguments


@pytest.mark.parametrize("number", ENDS, ids=str)
def test_a_signal_ends_at_once_before_there_is_something_to_save(number):
    with StopSignals() as stop, ended_by(number):
        signal.raise_signal(number)
    assert stop.received == number


@pytest.mark.parametrize("number", ENDS, ids=str)
def test_a_deferred_signal_is_noted_and_a_second_one_ends(number):
    with StopSignals() as stop:
        stop.defer()
        assert stop.received is None
        signal.raise_signal(number)
        assert stop.received == number
        with ended_by(number):
            signal.raise_signal(number)


@pytest.mark.parametrize("number", ENDS, ids=str)
def test_end_after_a_deferred_signal_has_its_exit_status(number):
    with StopSignals() as stop:
        stop.defer()
        signal.raise_signal(number)
        with ended_by(number):
            stop.end()


@pytest.mark.parametrize("number", ENDS, ids=str)
def test_once_all_is_saved_a_noted_signal_ends_and_a_new_one_at_once(number):
    with StopSignals() as stop:
        stop.defer()
        stop.end_at_once()
        with ended_by(number):
            signal.raise_signal(number)
    with StopSignals() as stop:
        stop.defer()
        signal.raise_signal(number)
        with ended_by(number):
            stop.end_at_once()


def test_a_noted_signal_is_answered_on_stderr(capfd):
    with StopSignals() as stop:
        stop.defer()
        signal.raise_signal(signal.SIGINT)
    assert "stopping and saving; once more to stop at once" in capfd.readouterr().err


def test_stop_signals_restores_the_previous_handlers():
    before = [signal.getsignal(number) for number in ENDS]
    with StopSignals():
        assert [signal.getsignal(number) for number in ENDS] != before
    assert [signal.getsignal(number) for number in ENDS] == before


def test_stop_signals_in_another_thread_changes_no_handler():
    seen = []

    def inside() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with StopSignals() as stop:
            seen.append((signal.getsignal(signal.SIGTERM) == before, stop.received))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [(True, None)]
