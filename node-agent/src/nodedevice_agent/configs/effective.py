"""Computes a node's built-in plugins: the NodeDeviceConfigs that select it, in layers, above the agent's file.

A resource belongs to the layer of higher priority; at equal priority to the one whose name sorts first. An invalid layer is
refused as a whole, with the reason.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Struct, field
from nodedevice_common.conversion import converted
from nodedevice_common.decoding import decode
from nodedevice_kube.config_checks import outside
from nodedevice_kube.config_rules import sentences

from nodedevice_agent.lib.config_rules import plugins_problems
from nodedevice_agent.plugins.contract import Plugin
from nodedevice_agent.plugins.settings import KINDS, LISTED, ConfiguredPlugins, PluginSettings

# bytes of an agent's report about all of them, and characters of one sentence in it
MAX_REPORT = 2048
_MAX_SENTENCE, _MAX_SHORTER = 500, 200
# Bytes of the specs of all configurations that select a node. A spec with 256 resources has a twentieth of that.
MAX_OCTETS = 1024 * 1024
_TOO_LONG = (
    f"the configurations that select this node, counted by priority up to this one, have more than {MAX_OCTETS // 1024:,} KiB: "
    "shorten them, or have them select fewer nodes"
)
# the rank of the agent's file: behind any priority
_LAST = 2**31
_MAX_SHORT = 60
# parts of settings without a device that an agent reports of one configuration
_MAX_UNMATCHED = 8


class Config(Struct, frozen=True):
    """A NodeDeviceConfig. plugins: their stored text. keys: the keys of its spec. octets: the size of its spec's text."""

    name: str
    generation: int
    priority: int = 0
    node_selector: Mapping[str, str] = field(default_factory=dict)
    plugins: msgspec.Raw = msgspec.Raw(b"{}")
    keys: tuple[str, ...] = ()
    octets: int = 0

    @property
    def rank(self) -> tuple[int, str]:
        """The lower one comes first."""
        return -self.priority, self.name

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.node_selector.items())


class Outcome(Struct, frozen=True):
    """The result of a configuration on a node. refusal: why it is refused; "" if it is applied.

    lost: resources that another configuration has, with its name. replaces: resources that the agent's file also names.
    """

    generation: int
    refusal: str = ""
    lost: tuple[tuple[str, str], ...] = ()
    replaces: tuple[str, ...] = ()


class Effective(Struct, frozen=True):
    """The plugins of a node, and the outcomes by name of the configurations that select it.

    ranks: the rank of a resource's layer, by name; if two resources have the same device, the lower rank is preferred.
    refused: resource names in configurations that are refused, and the kinds of plugins with one entry.
    places: by name of a plugin, its configuration, empty for the agent's file, and its place there.
    is_known: whether the node knows its configurations. is_cut: whether one is refused for its length: its names are unknown.
    """

    plugins: PluginSettings
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    is_known: bool = True
    is_cut: bool = False

    def names(self, resource_name: str, scope: str) -> bool:
        """Whether some configuration names that resource, be it refused. scope: of the built-in plugin that serves it, or did."""
        is_refused = any(KINDS[kind].is_scope(scope) for kind in KINDS if kind in self.refused)
        is_named = self.plugins.may_serve(resource_name) or resource_name in self.refused
        return is_named or is_refused or self.is_cut or not self.is_known


def effective(
    base: PluginSettings, configs: Iterable[Config], labels: Mapping[str, str], allowed_host_paths: Collection[str]
) -> Effective:
    """base: of the agent's file. labels: the Node's. allowed_host_paths: below which configurations may name paths."""
    selected = sorted((c for c in configs if c.selects(labels)), key=lambda c: c.rank)
    taken = _Taken()
    outcomes: dict[str, Outcome] = {}
    refused: set[str] = set()
    beyond = beyond_limit(selected)
    for config in selected:
        if config.name in beyond:
            outcomes[config.name] = Outcome(config.generation, _TOO_LONG)
            continue
        written: Any = None
        try:
            written = decode(config.plugins, Any)
            plugins = _plugins(config, written, allowed_host_paths)
        except ValueError as error:
            outcomes[config.name] = Outcome(config.generation, " ".join(str(error).split()))
            refused.update(_readable_names(written))
            continue
        outcomes[config.name] = Outcome(config.generation, lost=taken.add(config.name, plugins, -config.priority))
    # no loss of the file: configurations are there to replace its resources
    for name, owner in taken.add("", base, _LAST):
        if owner:
            outcomes[owner] = msgspec.structs.replace(outcomes[owner], replaces=(*outcomes[owner].replaces, name))
    found = PluginSettings(**taken.plugins, host_root=base.host_root)
    return Effective(found, outcomes, taken.ranks, frozenset(refused), taken.places, is_cut=bool(beyond))


def beyond_limit(selected: Iterable[Config]) -> frozenset[str]:
    """Names of those, in the order of their ranks, with which all texts have more than MAX_OCTETS, and of all that follow."""
    ordered = sorted(selected, key=lambda c: c.rank)
    sums = accumulate(config.octets for config in ordered)
    return frozenset(config.name for config, octets in zip(ordered, sums, strict=True) if octets > MAX_OCTETS)


class _Taken:
    def __init__(self) -> None:
        self.plugins: dict[str, Any] = {}
        # by resource name, and by kind if the kind has one entry, which may serve more names than it lists
        self._owner: dict[str, str] = {}
        self._alone: list[tuple[Plugin, str]] = []
        self.ranks: dict[str, int] = {}
        self.places: dict[str, tuple[str, str]] = {}

    def add(self, owner: str, plugins: ConfiguredPlugins, rank: int) -> tuple[tuple[str, str], ...]:
        """Add the free resources. Returns the others, with their owners."""
        lost = []
        # kinds with a list come last: within a layer, a name that only may_serve() knows is the other plugin's
        for kind, place, plugin in sorted(plugins.each(), key=lambda each: each[0] in LISTED):
            is_listed = kind in LISTED
            names = plugin.names() if is_listed else (kind, *plugin.names())
            if others := [owner for name in names for owner in self._owners(name)]:
                lost.append((plugin.name if is_listed else kind, others[0]))
                continue
            self._owner |= dict.fromkeys(names, owner)
            self.ranks |= dict.fromkeys(names, rank)
            self.places[plugin.name] = owner, place
            if is_listed:
                self.plugins.setdefault(kind, []).append(plugin)
            else:
                self.plugins[kind] = plugin
                self._alone.append((plugin, owner))
        return tuple(lost)

    def _owners(self, name: str) -> Iterable[str]:
        if name in self._owner:
            return [self._owner[name]]
        return (owner for plugin, owner in self._alone if plugin.may_serve(name))


def _readable_names(plugins: Any) -> Iterator[str]:
    """Names in an invalid configuration, as far as they can be read."""
    if not isinstance(plugins, dict):
        return
    yield from (kind for kind in KINDS if kind not in LISTED and plugins.get(kind) is not None)
    for kind in LISTED:
        entries = plugins.get(kind)
        for entry in entries if isinstance(entries, list) else ():
            name = entry.get("resourceName") if isinstance(entry, dict) else None
            if isinstance(name, str):
                yield name


def _plugins(config: Config, written: Any, allowed_host_paths: Collection[str]) -> ConfiguredPlugins:
    """written: its plugins. Raises ValueError."""
    problems = [
        *plugins_problems(written, config.keys),
        *sentences(outside(written, "spec.plugins", allowed_host_paths)),
    ]
    if problems:
        raise ValueError(problems[0] if len(problems) == 1 else f"{len(problems)} mistakes: {'; '.join(problems)}")
    return converted(ConfiguredPlugins, written)


def unmatched(found: Effective, groups: Mapping[str, Sequence[int]]) -> Mapping[str, tuple[str, ...] | None]:
    """Parts of each configuration without a device on the node; None while unknown.

    groups: by name of a plugin, the indexes of groups without a device.
    """
    known: dict[str, tuple[str, ...] | None] = {}
    for _, _, plugin in found.plugins.each():
        if not plugin.finds_files:
            continue
        owner, place = found.places[plugin.name]
        before, indexes = known.setdefault(owner, ()), groups.get(plugin.name)
        if before is not None and indexes is not None:
            texts = [f"spec.plugins.{place}.{text}" for text in plugin.unmatched(indexes)]
            known[owner] = (*before, *texts)[:_MAX_UNMATCHED]
        else:
            known[owner] = None
    return known


# -- the report ---------------------------------------------------------------------------------------------------------------


def report(outcomes: Mapping[str, Outcome], without: Mapping[str, Sequence[str] | None] | None = None) -> str:
    """The annotation of the agent's Lease: JSON of at most MAX_REPORT bytes. without: the result of unmatched()."""
    for longest in (_MAX_SENTENCE, _MAX_SHORTER, _MAX_SHORT, 0):
        text = _encoded(outcomes, longest, without or {})
        if len(text.encode()) <= MAX_REPORT:
            return text
    kept = dict(sorted(outcomes.items()))
    while kept and len(_encoded(kept, 0, {}).encode()) > MAX_REPORT:
        kept.popitem()
    return _encoded(kept, 0, {})


def _encoded(outcomes: Mapping[str, Outcome], longest: int, without: Mapping[str, Sequence[str] | None]) -> str:
    """longest: of a sentence; 0: one word."""
    shown: dict[str, dict[str, Any]] = {}
    for name, outcome in sorted(outcomes.items()):
        shown[name] = {"generation": outcome.generation}
        if outcome.refusal:
            shown[name]["refusal"] = outcome.refusal[:longest] or "refused"
        if outcome.lost:
            shown[name]["lost"] = {resource: to for resource, to in outcome.lost if longest}
        if outcome.replaces and longest:
            shown[name]["replaces"] = outcome.replaces
        if without.get(name, ()) != () and longest > _MAX_SHORT and not outcome.refusal:
            shown[name]["unmatched"] = without[name]
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False) if shown else ""
