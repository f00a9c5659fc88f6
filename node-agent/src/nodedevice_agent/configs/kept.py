"""Keeps the text of the NodeDeviceConfigs that select an agent's node, within a bound. Pure.

Keeps only the name and the selector's labels of others. When such a label of the Node changes, all are listed again.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from nodedevice_common.decoding import Undecodable, decode

from nodedevice_agent.configs.effective import MAX_OCTETS, Config, beyond_limit
from nodedevice_agent.kube.objects import NodeDeviceConfigObject
from nodedevice_agent.kube.responses import KubeMetadata

_NULL: Final = msgspec.Raw(b"null")
# a label that no Node has
_NO_NODE: Final = {"": ""}
_PRIORITIES: Final = range(-(2**31), 2**31)
# of configurations that do not select the node: the number of labels, and their length; a key has at most 317 characters
MAX_LABELS: Final = 64
_MAX_LABEL: Final = 317


class KeptConfig(msgspec.Struct):
    """config: None if it does not select the node; without `plugins` once has_text is False.

    labels: keys of its selector; None for more than are kept.
    """

    metadata: KubeMetadata
    config: Config | None
    labels: frozenset[str] | None
    has_text: bool = True

    def drop_text(self) -> None:
        assert self.config is not None
        self.config = msgspec.structs.replace(self.config, plugins=_NULL, keys=())
        self.has_text = False


class KeptConfigs:
    """The EventHandler of the watch. Drops texts beyond MAX_OCTETS in total, lowest priority first.

    changed: called when the selected configurations may have changed. list_again: called when there is room for a dropped text.
    """

    known_version = 0

    def __init__(self, changed: Callable[[], None], list_again: Callable[[], None]) -> None:
        self._changed = changed
        self._list_again = list_again
        self.are_known = False
        self._found: dict[str, KeptConfig] = {}
        # configurations with a text, including the list being read
        self._texts: dict[str, KeptConfig] = {}

    def keep(self, found: NodeDeviceConfigObject, labels: Mapping[str, str]) -> KeptConfig:
        """Keep one configuration. labels: the Node's."""
        meta, config = found.metadata, config_of(found)
        keys = frozenset(config.node_selector)
        is_short = len(keys) <= MAX_LABELS and all(len(key) <= _MAX_LABEL for key in keys)
        metadata = KubeMetadata(meta.name, uid=meta.uid, resourceVersion=meta.resourceVersion)
        is_selecting = config.selects(labels)
        made = KeptConfig(metadata, config if is_selecting else None, keys if is_short else None)
        self._texts.pop(meta.name, None)
        if is_selecting:
            self._texts[meta.name] = made
            by_rank = sorted((each.config.rank, name) for name, each in self._texts.items() if each.config is not None)
            while self._octets() > MAX_OCTETS:
                self._texts.pop(by_rank.pop()[1]).drop_text()
        return made

    def _octets(self) -> int:
        return sum(each.config.octets for each in self._texts.values() if each.config is not None)

    def synced(self, objects: list[KeptConfig], version: int) -> None:
        self._found = {one.metadata.name: one for one in objects}
        self._texts = {name: each for name, each in self._texts.items() if self._found.get(name) is each}
        self.are_known = True
        self._changed()

    def updated(self, found: KeptConfig) -> None:
        self._found = {**self._found, found.metadata.name: found}
        self._changed()

    def deleted(self, found: KeptConfig) -> None:
        self._texts.pop(found.metadata.name, None)
        self._found = {name: each for name, each in self._found.items() if name != found.metadata.name}
        self._changed()

    def selecting(self) -> list[Config] | None:
        """The configurations that select the node; None if a dropped text has room now and must be read first."""
        found = {name: each for name, each in self._found.items() if each.config is not None}
        configs = [each.config for each in found.values() if each.config is not None]
        beyond = beyond_limit(configs)
        if all(each.has_text or name in beyond for name, each in found.items()):
            return sorted(configs, key=lambda config: config.name)
        self._list_again()
        return None

    def labels_changed(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """List all again if a selector names a changed label of the Node; until then the selection is unknown."""
        selectors = [each.labels for each in self._found.values()]
        named = frozenset[str]().union(*(labels for labels in selectors if labels is not None))
        is_other = before != after if None in selectors else any(before.get(key) != after.get(key) for key in named)
        if is_other:
            self.are_known = False
            self._list_again()


def config_of(found: NodeDeviceConfigObject) -> Config:
    """Accepts any shape: with another schema the plugins are refused, and any other invalid value counts as absent."""
    try:
        spec: dict[str, msgspec.Raw] = decode(found.spec, dict[str, msgspec.Raw])
        selector: Any = decode(spec.get("nodeSelector", msgspec.Raw(b"{}")), Any)
        priority: Any = decode(spec.get("priority", _NULL), Any)
    except Undecodable:
        return Config(found.metadata.name, found.metadata.generation, plugins=_NULL)
    is_plain = isinstance(selector, dict) and all(isinstance(value, str) for value in selector.values())
    return Config(
        found.metadata.name,
        found.metadata.generation,
        priority if isinstance(priority, int) and priority in _PRIORITIES else 0,
        selector if is_plain else _NO_NODE,
        # without the rest of the object's text
        spec.get("plugins", _NULL).copy(),
        tuple(sorted(spec)),
        memoryview(found.spec).nbytes,
    )
