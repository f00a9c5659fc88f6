"""Lines of a log as a program writes them: level, message and all fields."""

import logging
from typing import Any

# of each record, whatever is logged
_STANDARD = vars(logging.LogRecord("", 0, "", 0, "", None, None)).keys() | {"message", "asctime"}


def log_lines(records: list[logging.LogRecord]) -> list[tuple[str, str, dict[str, Any]]]:
    """In the order in which they were logged."""
    return [
        (each.levelname, each.message, {key: value for key, value in vars(each).items() if key not in _STANDARD})
        for each in records
    ]
