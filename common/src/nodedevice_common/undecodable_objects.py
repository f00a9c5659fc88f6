"""Logs an undecodable API object once, with the remedy, though each list has it again."""

import logging
from typing import Final

# so many objects of that kind are remembered, the last ones
_MOST: Final = 1024
_logged: dict[tuple[str, str, str, str], None] = {}


def log_skipped(log: logging.Logger, kind: str, namespace: str, name: str, problem: Exception) -> None:
    """kind: its plural. namespace, name: "" if they are absent or undecodable."""
    entry = (kind, namespace, name, str(problem))
    if entry in _logged:
        return
    _logged[entry] = None
    if len(_logged) > _MOST:
        del _logged[next(iter(_logged))]
    which = f"{kind} {name or '...'}{f' -n {namespace}' if namespace else ''}"
    fields = {"kind": kind, **({"namespace": namespace} if namespace else {}), "object": name, "error": str(problem)}
    remedy = f"correct it (kubectl edit {which}) or remove it (kubectl delete {which})"
    log.error("cannot decode object; skipping it", extra={**fields, "remedy": remedy})


def forget() -> None:
    """Forget all, as a new process does."""
    _logged.clear()
