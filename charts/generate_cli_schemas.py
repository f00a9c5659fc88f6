"""Writes the schemas of `kubectl nodedevice config`: of the kind NodeDeviceConfig, and of the agent's settings file.

The first is the CRD's own; the second is made from the agent's settings as the plugins of the first are. Run by `make generate`.
"""

import json
from pathlib import Path
from typing import Any, Final

from nodedevice_agent.settings import AgentSettings

from charts import generate_config_schema
from hack import yaml_text

TARGET: Final = Path(__file__).parents[1] / "cli/src/kubectl_nodedevice/schemas.json"


def schemas() -> dict[str, Any]:
    """By what a file is of."""
    crd = yaml_text.load(generate_config_schema.CRD.read_text(encoding="utf-8"))
    kind = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return {"NodeDeviceConfig": kind, "agent": generate_config_schema.object_of(AgentSettings)}


def text() -> str:
    """Of the file: indented, so that a diff shows what has changed."""
    return json.dumps(schemas(), indent=1) + "\n"


def main() -> None:
    TARGET.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
