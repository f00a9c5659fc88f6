"""How an administrator types a command of this agent, for messages that are read in the API: there it may well run in a pod."""

import os
from functools import cache
from pathlib import Path
from typing import Final

PROGRAM: Final = "nodedevice-agent"
_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@cache
def typed() -> str:
    """The program with what stands before it: in a pod `kubectl exec` with this pod's name, which its host name is."""
    try:
        namespace = _NAMESPACE.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return PROGRAM
    pod = os.environ.get("HOSTNAME", "")
    return f"kubectl exec --namespace {namespace} {pod} -- {PROGRAM}" if namespace and pod else PROGRAM
