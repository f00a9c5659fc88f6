"""The log: one line an event, a constant text and fields, for people or for machines."""

import datetime
import json
import logging
import sys

from nodedevice_operator.settings import LogFormat, LogLevel

_OURS = "nodedevice_operator"
_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_plain(value)}" for key, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {record.getMessage()}{fields}"
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


def set_up(level: LogLevel, form: LogFormat) -> None:
    """Send every log line of the process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # these tell each attempt of each request; what matters of it is logged once, by what watches over the API server
    for name in ("kopf", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING if level == "debug" else logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    if not record.name.startswith(_OURS):
        return {}  # kopf hangs its whole settings on each of its lines
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c.isspace() or c == '"' for c in text) else text
