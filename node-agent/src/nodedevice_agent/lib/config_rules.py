"""Checks settings of the agent by the rules that every entry point has, and reports all mistakes at once.

Rules are read when there is something to check, and not kept: they take more memory than the settings.
"""

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from nodedevice_common.decoding import Undecodable, decode
from nodedevice_kube.config_rules import problems, sentences


def settings_problems(settings: Any) -> list[str]:
    """A sentence for each mistake in a settings file, beginning with its path."""
    return sentences(problems(settings, _rules()["settings"]))


def plugins_problems(plugins: Any, keys: Iterable[str]) -> list[str]:
    """Problems of the plugins of a NodeDeviceConfig. keys: of its spec."""
    rule = {"type": "object", "properties": {"nodeSelector": {}, "priority": {}, "plugins": _rules()["plugins"]}}
    spec = dict.fromkeys(keys) | {"plugins": plugins}
    return sentences(problems(spec, rule, "spec", {"properties": {"spec": rule}}))


def _rules() -> Any:
    try:
        return decode(files("nodedevice_agent.lib").joinpath("config_rules.json").read_bytes(), Any)
    except Undecodable as exc:
        raise RuntimeError("config_rules.json of this program is damaged; install it again") from exc
