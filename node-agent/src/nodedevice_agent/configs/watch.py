"""Watches NodeDeviceConfigs and the labels of the agent's own Node, and applies the resulting built-in plugins.

Keeps the last state in the state directory: a node that starts without an API server still has its plugins. Without it, the
start waits a moment for the first lists.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from nodedevice_common.decoding import Undecodable, decode
from nodedevice_common.pacing import TokenBucket
from nodedevice_common.threads import in_thread, in_thread_if

from nodedevice_agent.configs.effective import Config, Effective, effective, report, unmatched
from nodedevice_agent.configs.kept import KeptConfig, KeptConfigs
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.objects import NodeDeviceConfigObject, NodeMetadataObject
from nodedevice_agent.kube.responses import MOST_BYTES_IN_LOOP
from nodedevice_agent.lib.deviceplugin_server.built_in import UnmatchedGroups
from nodedevice_agent.lib.filesystem import replace_durably
from nodedevice_agent.plugins.settings import KINDS, PluginSettings

log = logging.getLogger(__name__)

FILE_NAME: Final = "configs.json"
_START_SECONDS: Final = 5.0
_REPORT_SECONDS: Final = 2.0
# lists in addition to the ones that a watch needs
_LISTS_PER_SECOND: Final = 0.1
_LISTS_AT_ONCE: Final = 3
_PLUGINS_LABELS: Final = frozenset(label for kind in KINDS.values() for label in kind.node_labels)


class _Stored(msgspec.Struct):
    """The last state. has_configs: whether the configurations were known; otherwise only labels count."""

    labels: dict[str, str] = {}
    configs: list[Config] = []
    has_configs: bool = True


class ConfigWatch:
    """run() until cancelled; also the EventHandler of the watch of the Node. base: the plugins of the agent's file.

    apply: called with the node's plugins at first and at each change. publish: called with the report about the configurations that
    select the node, and whether the node refuses one, at each change. labels_are: called with the Node's labels at each change, and
    at first with the kept ones. without: groups of device files without a device, which are in the report.
    """

    known_version = 0

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
        without: UnmatchedGroups | None = None,
    ) -> None:
        # separate watches: an API server without this kind delays no other watch, and the agent stays ready
        self._watches = Watches(cluster)
        self._node_name = node_name
        self._base = base
        self._allowed_host_paths = allowed_host_paths
        self._file = state_dir / FILE_NAME
        self._apply = apply
        self._publish = publish
        self._publish_labels = labels_are
        self._stored = _Stored(has_configs=False)
        self._applied: Effective | None = None
        self._without = without or UnmatchedGroups()
        self._is_without_changed = asyncio.Event()
        self._without.changed = self._is_without_changed.set
        self._know_nothing()

    def _know_nothing(self) -> None:
        """Of the API server: a run after a failure follows it from the start."""
        self._labels: Mapping[str, str] | None = None
        self._is_to_list = asyncio.Event()
        self._configs = KeptConfigs(self._changed, self._is_to_list.set)
        # labels and configurations are known
        self._are_known = asyncio.Event()
        # one of them is another
        self._is_changed = asyncio.Event()

    async def run(self) -> None:
        self._know_nothing()
        stored = None if self._stored.has_configs else await in_thread(lambda: _read(self._file))
        if stored is not None:
            self._stored = stored
            self._publish_labels(stored.labels)
        has_stored = self._stored.has_configs
        if has_stored:
            await self._decide(self._stored)
        async with asyncio.TaskGroup() as tasks:
            node = {"metadata.name": self._node_name}
            tasks.create_task(self._watches.follow("node", NodeMetadataObject, node, self))
            tasks.create_task(self._follow_configs())
            if not has_stored:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_START_SECONDS):
                        await self._are_known.wait()
                if not self._are_known.is_set():
                    await self._decide(self._stored, is_known=False)
            tasks.create_task(self._work())
            tasks.create_task(self._report_unmatched())

    def synced(self, objects: list[NodeMetadataObject], version: int) -> None:
        for node in objects:
            self.updated(node)

    def updated(self, found: NodeMetadataObject) -> None:
        labels = found.metadata.labels or {}
        before, self._labels = self._labels, labels
        self._publish_labels(labels)
        if before is None:
            self._is_to_list.set()
        else:
            self._configs.labels_changed(before, labels)
        self._changed()

    def deleted(self, found: NodeMetadataObject) -> None:
        """Keep the last labels: the Node may be created again at once."""

    async def _follow_configs(self) -> None:
        """Starts once the Node's labels are known. Begins with a new list if a dropped text is needed."""
        loop = asyncio.get_running_loop()
        lists = TokenBucket(_LISTS_PER_SECOND, _LISTS_AT_ONCE, loop.time())
        await self._is_to_list.wait()
        while True:
            self._is_to_list.clear()
            follow = self._watches.follow("configs", NodeDeviceConfigObject, {}, self._configs, keep=self._keep)
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(follow)
                await self._is_to_list.wait()
                await asyncio.sleep(lists.reserve(loop.time()))
                following.cancel()

    def _keep(self, found: NodeDeviceConfigObject) -> KeptConfig:
        return self._configs.keep(found, self._labels or {})

    def _changed(self) -> None:
        self._is_changed.set()
        if self._has_both:
            self._are_known.set()

    @property
    def _has_both(self) -> bool:
        return self._labels is not None and self._configs.are_known

    async def _work(self) -> None:
        """Decide and write in threads: a configuration may be long, and a disk slow."""
        while True:
            await self._is_changed.wait()
            self._is_changed.clear()
            labels = self._labels or {}
            configs = self._configs.selecting() if self._has_both else None
            if configs is None:
                await self._keep_plugins_labels(labels)
                continue
            # labels that nothing reads change by themselves
            named = {*_PLUGINS_LABELS, *(key for config in configs for key in config.node_selector)}
            found = _Stored({key: value for key, value in labels.items() if key in named}, configs)
            # also if the configurations are empty, and the last decision was made without them
            if found != self._stored or self._applied is None or not self._applied.is_known:
                await self._decide(found)
                self._stored = found
                await self._write(found)

    async def _keep_plugins_labels(self, labels: Mapping[str, str]) -> None:
        """Called while the configurations are unknown, for example if the API server lacks their kind."""
        others = {key: value for key, value in self._stored.labels.items() if key not in _PLUGINS_LABELS}
        own = {key: value for key, value in labels.items() if key in _PLUGINS_LABELS}
        found = msgspec.structs.replace(self._stored, labels={**others, **own})
        if self._labels is not None and found != self._stored:
            self._stored = found
            await self._write(found)

    async def _decide(self, known: _Stored, *, is_known: bool = True) -> None:
        decide = partial(effective, self._base, known.configs, known.labels, self._allowed_host_paths)
        found = await in_thread_if(sum(each.octets for each in known.configs) > MOST_BYTES_IN_LOOP, decide)
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
        self._report(found)

    def _report(self, found: Effective) -> None:
        without = unmatched(found, self._without.by_resource)
        self._publish(report(found.outcomes, without), any(outcome.refusal for outcome in found.outcomes.values()))

    async def _report_unmatched(self) -> None:
        """Again when other groups are without a device, at a bounded rate: devices may come and go many times a second."""
        while True:
            await self._is_without_changed.wait()
            await asyncio.sleep(_REPORT_SECONDS)
            self._is_without_changed.clear()
            if self._applied is not None:
                self._report(self._applied)

    async def _write(self, known: _Stored) -> None:
        try:
            await in_thread(lambda: replace_durably(self._file, msgspec.json.encode(known).decode()))
        except OSError as exc:
            log.error("cannot keep configurations", extra={"path": str(self._file), "error": str(exc)})


def last_known(base: PluginSettings, allowed_host_paths: Collection[str], state_dir: Path) -> PluginSettings:
    """The plugins of the node in the last kept state; arguments as for ConfigWatch."""
    known = _read(state_dir / FILE_NAME) or _Stored()
    return effective(base, known.configs, known.labels, allowed_host_paths).plugins


def _without_outcomes(found: Effective) -> Effective:
    return msgspec.structs.replace(found, outcomes={})


def _read(file: Path) -> _Stored | None:
    """Returns None for a damaged file."""
    try:
        return decode(file.read_bytes(), _Stored)
    except FileNotFoundError:
        return None
    except (OSError, Undecodable) as exc:
        extra = {"path": str(file), "error": str(exc)[:400]}
        log.error("cannot read the configurations that were known last; waiting for the API server", extra=extra)
        return None
