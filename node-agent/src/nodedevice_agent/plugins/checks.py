"""Checks a path in settings, as charts/config_rules.py does, for what comes from a flag. Pure."""

MAX_PATH = 4096


def check_path(key: str, path: str) -> None:
    """key: for the message. Raises ValueError."""
    if not path.startswith("/"):
        raise ValueError(f"{key}: {path[:400]!r} must be an absolute path, such as /dev/ttyUSB0")
    if len(path) > MAX_PATH or "\0" in path:
        raise ValueError(f"{key}: {path[:400]!r} is not a path: at most {MAX_PATH} characters, none of them NUL")
    if ".." in path.split("/") or "//" in path:
        raise ValueError(f"{key}: {path[:400]!r} must be a plain path, without .. and //")
