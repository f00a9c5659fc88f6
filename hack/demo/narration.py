"""What the demos have in common: a heading for each step, and Ctrl-C (or a closed terminal) that ends them wherever it comes.

An interrupt that comes while Python runs a destructor or a callback of the garbage collector is printed and forgotten by the
interpreter. So it is remembered, and checked before the next step.
"""

import signal
import threading

_stopped = threading.Event()


def listen_for_stop() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, in the next step at the latest."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup wants it
        signal.signal(signal.SIGHUP, _stop)


def narrate(line: str) -> None:
    """Begin a step. Raises KeyboardInterrupt when it is not to begin any more."""
    if _stopped.is_set():
        raise KeyboardInterrupt
    print(f"\n== {line}", flush=True)


def _stop(number: int, frame: object) -> None:
    _stopped.set()
    raise KeyboardInterrupt
