"""Logs a problem that is found again and again: once, until it is over."""

import logging


class LogOnce:
    """Of one subject, such as a file; each message is a problem of its own."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._current: set[str] = set()

    def report(self, message: str, error: str, level: int = logging.WARNING, **fields: object) -> bool:
        """error: why it is so; "" where it is not, or no longer. Returns whether that has just begun or ended.

        While it lasts the cause may change, which is not logged again: it may contain what is new each time.
        """
        if bool(error) is (message in self._current):
            return False
        if error:
            self._current.add(message)
            self._log.log(level, message, extra={**fields, "error": error})
        else:
            self._current.remove(message)
        return True
