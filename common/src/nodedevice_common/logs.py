"""Logs on stderr. A line is an event with its fields, as text for people or JSON for collectors."""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from nodedevice_kube.masking import masked

from nodedevice_common.safe_output import unguarded
from nodedevice_common.text import printable

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

_log = logging.getLogger(__name__)

_OURS = "nodedevice_"
_INCOMPLETE: Final = "the log could not be written for a while; lines may be missing"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_shown(value)}" for key, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {' '.join(record.getMessage().splitlines())}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class _Handler(logging.StreamHandler[TextIO]):
    """Masks secrets. If lines cannot be written, as on a full disk, it reports that later; logging would print tracebacks."""

    def __init__(self) -> None:
        super().__init__(unguarded(sys.stderr))
        self._failed, self._error = 0, ""

    def format(self, record: logging.LogRecord) -> str:
        return printable(masked(super().format(record)))

    def emit(self, record: logging.LogRecord) -> None:
        failed = self._failed
        super().emit(record)
        if failed and self._failed == failed:
            self._failed = 0
            extra = {"lines": failed, "error": self._error}
            super().emit(_log.makeRecord(_log.name, logging.WARNING, "", 0, _INCOMPLETE, (), None, extra=extra))

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._failed, self._error = self._failed + 1, str(error)


def set_up_logs(level: LogLevel, log_format: LogFormat, libraries: Mapping[str, int]) -> None:
    """Log to stderr. libraries: the lowest logged level, by logger of a library."""
    handler = _Handler()
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, lowest in libraries.items():
        logging.getLogger(name).setLevel(lowest)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    if not record.name.startswith(_OURS):
        return {}  # kopf attaches its whole settings to each of its records
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(value: object) -> str:
    """Return a word unchanged, and any other value as JSON, so that a line stays one line."""
    is_word = isinstance(value, str) and value and value.isprintable() and not set(value) & {" ", '"'}
    return str(value) if is_word else json.dumps(value, default=str)
