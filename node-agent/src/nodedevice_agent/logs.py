"""How the agent logs: one line an event, a constant text and its fields; text for people, JSON for collectors."""

import json
import logging
import sys
from datetime import UTC, datetime

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Line(logging.Formatter):
    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {key: value for key, value in vars(record).items() if key not in _PLAIN}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if self._as_json:
            line = {"time": at, "level": record.levelname.lower(), "event": record.getMessage(), **fields}
            return json.dumps(line, default=str)
        shown = "".join(f" {key}={json.dumps(value, default=str)}" for key, value in fields.items())
        return f"{at} {record.levelname:7} {record.getMessage()}{shown}"


def set_up(level: str, log_format: str) -> None:
    """level: debug, info, warning or error; log_format: text or json. To standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line(log_format == "json"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # a line for every request would drown ours
    for library in ("httpx2", "httpcore2"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # a traceback for every message of a plugin that cannot be parsed; whoever made the call says it in a sentence
    logging.getLogger("grpc._common").setLevel(logging.CRITICAL)
