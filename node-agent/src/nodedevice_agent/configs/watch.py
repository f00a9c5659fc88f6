"""Watches the NodeDeviceConfigs and the labels of the agent's own Node, and applies what they make of the built-in plugins.

What was known last is kept in the state directory: a node that starts without an API server has its plugins all the same. Where
nothing was ever known, the first lists are waited for, for a moment only.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from nodedevice_common.decoding import Undecodable, decode

from nodedevice_agent.configs.effective import Config, Effective, effective, report
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.objects import NodeDeviceConfigObject, NodeMetadataObject
from nodedevice_agent.lib.filesystem import replace_durably
from nodedevice_agent.plugins.settings import GPU_CLIENT_LABEL, PluginSettings

log = logging.getLogger(__name__)

FILE_NAME: Final = "configs.json"
_START_SECONDS: Final = 5.0
# a label that none has
_NO_NODE: Final = {"": ""}
_PRIORITIES: Final = range(-(2**31), 2**31)


class _Stored(msgspec.Struct):
    """What was known last."""

    labels: dict[str, str] = {}
    configs: list[Config] = []


class ConfigWatch:
    """run() until cancelled.

    base: the plugins of the agent's file. apply: called with what the node has, at first and whenever that changes.
    publish: called with the report about the configurations that select the node, and whether it refuses one, when that changes.
    labels_are: called with the Node's labels at each change, and at first with those that were kept.
    """

    def __init__(
        self,
        cluster: KubeClient,
        node_name: str,
        base: PluginSettings,
        allowed_host_paths: Collection[str],
        state_dir: Path,
        apply: Callable[[Effective], None],
        publish: Callable[[str, bool], None],
        labels_are: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        # of its own: an API server without this kind makes no other watch wait, nor is the agent unready for it
        self._watches = Watches(cluster)
        self._node_name = node_name
        self._base = base
        self._allowed_host_paths = allowed_host_paths
        self._file = state_dir / FILE_NAME
        self._apply = apply
        self._publish = publish
        self._publish_labels = labels_are
        self._stored = _Stored()
        self._labels: Mapping[str, str] | None = None
        self._configs: dict[str, Config] | None = None
        self._known = asyncio.Event()
        self._applied: Effective | None = None

    async def run(self) -> None:
        stored = _read(self._file)
        has_stored = stored is not None
        if stored is not None:
            self._stored = stored
            self._publish_labels(stored.labels)
            self._decide(stored)
        async with asyncio.TaskGroup() as tasks:
            node = {"metadata.name": self._node_name}
            tasks.create_task(self._watches.follow("node", NodeMetadataObject, node, _NodeHandler(self._labels_are)))
            handler = _ConfigHandler(self._configs_are)
            tasks.create_task(self._watches.follow("configs", NodeDeviceConfigObject, {}, handler))
            if not has_stored:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_START_SECONDS):
                        await self._known.wait()
                if self._applied is None:
                    self._decide(self._stored, is_known=False)

    # -- what is known ----------------------------------------------------------------------------------------------------

    def _labels_are(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._publish_labels(labels)
        self._changed()

    def _configs_are(self, configs: dict[str, Config]) -> None:
        self._configs = configs
        self._changed()

    def _changed(self) -> None:
        if self._labels is None or self._configs is None:
            return
        configs = sorted(self._configs.values(), key=lambda config: config.name)
        # labels that nothing reads change by themselves
        named = {GPU_CLIENT_LABEL, *(key for config in configs for key in config.node_selector)}
        found = _Stored({key: value for key, value in self._labels.items() if key in named}, configs)
        # also where what was decided without them, and what they say, is that there are none
        if found != self._stored or self._applied is None or not self._applied.is_known:
            self._stored = found
            self._decide(found)
            self._write()
        self._known.set()

    def _decide(self, known: _Stored, *, is_known: bool = True) -> None:
        found = effective(self._base, known.configs, known.labels, self._allowed_host_paths)
        found = msgspec.structs.replace(found, is_known=is_known)
        before, self._applied = self._applied, found
        for name, outcome in found.outcomes.items():
            if before is not None and before.outcomes.get(name) == outcome:
                continue
            extra = {"config": name, "generation": outcome.generation}
            if outcome.refusal:
                log.error("configuration refused", extra={**extra, "error": outcome.refusal})
            else:
                log.info("configuration taken", extra={**extra, "lost": dict(outcome.lost)})
        if before is None or _without_outcomes(before) != _without_outcomes(found):
            self._apply(found)
        self._publish(report(found.outcomes), any(outcome.refusal for outcome in found.outcomes.values()))

    def _write(self) -> None:
        try:
            replace_durably(self._file, msgspec.json.encode(self._stored).decode())
        except OSError as exc:
            log.error("cannot keep configurations", extra={"path": str(self._file), "error": str(exc)})


def last_known(base: PluginSettings, allowed_host_paths: Collection[str], state_dir: Path) -> PluginSettings:
    """The plugins of the node as they were known last; arguments as of ConfigWatch."""
    known = _read(state_dir / FILE_NAME) or _Stored()
    return effective(base, known.configs, known.labels, allowed_host_paths).plugins


def _without_outcomes(found: Effective) -> Effective:
    return msgspec.structs.replace(found, outcomes={})


def _read(file: Path) -> _Stored | None:
    """What is damaged is as good as nothing."""
    try:
        return decode(file.read_bytes(), _Stored)
    except FileNotFoundError:
        return None
    except (OSError, Undecodable) as exc:
        extra = {"path": str(file), "error": str(exc)[:400]}
        log.error("cannot read the configurations that were known last; waiting for the API server", extra=extra)
        return None


class _NodeHandler:
    known_version = 0

    def __init__(self, labels_are: Callable[[Mapping[str, str]], None]) -> None:
        self._labels_are = labels_are

    def synced(self, objects: list[NodeMetadataObject], version: int) -> None:
        for found in objects:
            self.updated(found)

    def updated(self, found: NodeMetadataObject) -> None:
        self._labels_are(found.metadata.labels or {})

    def deleted(self, found: NodeMetadataObject) -> None:
        """Its labels stay those that it had: it may be made again at once."""


class _ConfigHandler:
    known_version = 0

    def __init__(self, configs_are: Callable[[dict[str, Config]], None]) -> None:
        self._configs_are = configs_are
        self._found: dict[str, Config] = {}

    def synced(self, objects: list[NodeDeviceConfigObject], version: int) -> None:
        self._found = {one.metadata.name: config_of(one) for one in objects}
        self._configs_are(self._found)

    def updated(self, found: NodeDeviceConfigObject) -> None:
        self._found = {**self._found, found.metadata.name: config_of(found)}
        self._configs_are(self._found)

    def deleted(self, found: NodeDeviceConfigObject) -> None:
        self._found = {name: config for name, config in self._found.items() if name != found.metadata.name}
        self._configs_are(self._found)


def config_of(found: NodeDeviceConfigObject) -> Config:
    """Of an object of any shape: where the schema was another, the plugins are refused, and everything else counts as absent."""
    spec: Mapping[str, Any] = found.spec if isinstance(found.spec, dict) else {}
    selector, priority = spec.get("nodeSelector", {}), spec.get("priority")
    is_plain = isinstance(selector, dict) and all(isinstance(value, str) for value in selector.values())
    return Config(
        found.metadata.name,
        found.metadata.generation,
        priority if isinstance(priority, int) and priority in _PRIORITIES else 0,
        selector if is_plain else _NO_NODE,
        spec.get("plugins"),
        tuple(sorted(spec)),
    )
