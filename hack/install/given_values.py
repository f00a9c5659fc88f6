"""Checks a file of values without Helm and without a cluster, as `kubectl nodedevice config validate` does.

Helm's templates refuse more, at an install.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from nodedevice_kube import config_rules
from nodedevice_kube.decoding import Undecodable, decode_documents, read_text

from hack.install.errors import InstallError

_MOST_SHOWN: Final = 5


def check(file: Path) -> None:
    """Raises InstallError with the fault in the file."""
    if not file.is_file():
        raise InstallError(f"VALUES={file} is not a file", "name a file of values for the chart, in YAML")
    try:
        documents = decode_documents(read_text(file), is_strict=True)
    except Undecodable as exc:
        raise InstallError(f"VALUES={file}: {exc}", "correct VALUES") from exc
    if len(documents) > 1:
        raise InstallError(f"VALUES={file}: it has several documents, but Helm reads only the first", "make it one")
    found = problems(documents[0] if documents else {})
    if found:
        more = f"; and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
        raise InstallError(f"VALUES={file}: {'; '.join(found[:_MOST_SHOWN])}{more}", "correct VALUES")


def problems(values: Any) -> list[str]:
    """A sentence for each fault, beginning with its place."""
    if not isinstance(values, dict):
        return ["it has no keys: a file of values is a mapping, such as `agents: {}`"]
    rules = json.loads(files("kubectl_nodedevice").joinpath("schemas.json").read_bytes())["values"]
    return config_rules.sentences(config_rules.problems(values, rules))
