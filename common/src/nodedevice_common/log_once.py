"""Logs a recurring problem once, until it is over."""

import logging


class LogOnce:
    """Problems of one subject, such as a file; each message is a problem."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._current: set[str] = set()

    def report(self, message: str, error: str, level: int = logging.WARNING, **fields: object) -> bool:
        """error: the cause; "" if the problem is over. Return whether the problem has just begun or ended.

        A changed cause is not logged again, as it may differ each time.
        """
        if bool(error) is (message in self._current):
            return False
        if error:
            self._current.add(message)
            self._log.log(level, message, extra={**fields, "error": error})
        else:
            self._current.remove(message)
        return True
