"""Which built-in plugins a node has: those of the NodeDeviceConfigs that select it, in layers, and below them the agent's file.

A resource belongs to one layer: the one of higher priority, and of two with one priority the one whose name comes first. A layer
that is not valid is refused whole, and says why.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field
from nodedevice_common.conversion import converted
from nodedevice_common.decoding import decode
from nodedevice_kube.config_checks import outside
from nodedevice_kube.config_rules import sentences

from nodedevice_agent.lib.config_rules import plugins_problems
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.settings import GPUS, SCOPE, GenericSettings, PluginSettings, SimulatedSettings

# the settings of a layer that may be a conflict as a whole
NVML = "nvml"
# of an agent's report about all of them, in bytes; and of one sentence in it, in characters
MAX_REPORT = 2048
_MAX_SENTENCE, _MAX_SHORTER = 500, 200
# Of the specs of all configurations that select a node, as text. One of 256 resources has a twentieth of that.
MAX_OCTETS = 1024 * 1024
_TOO_LONG = (
    f"the configurations that select this node, counted by priority up to this one, have more than {MAX_OCTETS // 1024:,} KiB: "
    "shorten them, or have them select fewer nodes"
)
# the rank of the agent's file: behind any priority
_LAST = 2**31
_MAX_SHORT = 60
# groups without a device that an agent reports of one configuration
_MAX_UNMATCHED = 8


class ConfiguredPlugins(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """spec.plugins: as in the agent's file, but for what concerns the agent's own process."""

    # Device files of the node, by path or by what the kernel and udevd say of them.
    generic: Annotated[list[GenericSettings], Meta(max_length=256)] = []
    # Devices that are only numbers, to try things out.
    simulated: Annotated[list[SimulatedSettings], Meta(max_length=256)] = []
    # NVIDIA's GPUs; `{}` is enough. Unset: GPUs are ignored, as another plugin may serve them.
    nvml: NvmlSettings | None = None


class Config(Struct, frozen=True):
    """A NodeDeviceConfig. plugins: as text, as it is stored. keys: those of its spec. octets: of the text of its spec."""

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
        """Whether a node with these labels is one of its nodes."""
        return all(labels.get(key) == value for key, value in self.node_selector.items())


class Outcome(Struct, frozen=True):
    """What became of a configuration on a node. refusal: why it is not taken at all; empty where it is.

    lost: resources that it names and that another one has, with the name of that. replaces: those that the agent's file names, too.
    """

    generation: int
    refusal: str = ""
    lost: tuple[tuple[str, str], ...] = ()
    replaces: tuple[str, ...] = ()


class Effective(Struct, frozen=True):
    """The plugins of a node, and the outcomes by name of the configurations that select it.

    ranks: by resource name, that of its layer; the lower one is preferred where two resources have the same device.
    refused: resource names in configurations that are refused, NVML for all of GPUs. places: by resource name of device files, its
    configuration and its index there, with an empty name for the agent's file. is_known: False for a node that does not know its
    configurations yet. is_cut: True where one is refused for its length, so that its names are not known.
    """

    plugins: PluginSettings
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    is_known: bool = True
    is_cut: bool = False

    def names(self, resource_name: str, scope: str) -> bool:
        """Whether some configuration names that resource, be it refused; then the resource has not ended for good.

        scope: of the built-in plugin that serves it, or did.
        """
        is_of_gpus = NVML in self.refused and scope == f"{SCOPE} {GPUS}"
        is_named = self.plugins.may_serve(resource_name) or resource_name in self.refused
        return is_named or is_of_gpus or self.is_cut or not self.is_known


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
            outcomes[config.name] = Outcome(config.generation, _sentence(error))
            refused.update(_readable_names(written))
            continue
        outcomes[config.name] = Outcome(config.generation, lost=taken.add(config.name, plugins, -config.priority))
    # no loss of the file: configurations are there to replace its resources
    for name, owner in taken.add("", ConfiguredPlugins(base.generic, base.simulated, base.nvml), _LAST):
        outcomes[owner] = msgspec.structs.replace(outcomes[owner], replaces=(*outcomes[owner].replaces, name))
    found = PluginSettings(taken.generic, taken.simulated, taken.nvml, base.host_root)
    return Effective(found, outcomes, taken.ranks, frozenset(refused), taken.places, is_cut=bool(beyond))


def beyond_limit(selected: Iterable[Config]) -> frozenset[str]:
    """Names of those, in the order of their ranks, with which all texts have more than MAX_OCTETS, and of all that follow."""
    ordered = sorted(selected, key=lambda c: c.rank)
    sums = accumulate(config.octets for config in ordered)
    return frozenset(config.name for config, octets in zip(ordered, sums, strict=True) if octets > MAX_OCTETS)


class _Taken:
    """The plugins so far, and who has which name."""

    def __init__(self) -> None:
        self.generic: list[GenericSettings] = []
        self.simulated: list[SimulatedSettings] = []
        self.nvml: NvmlSettings | None = None
        self._owner: dict[str, str] = {}
        self.ranks: dict[str, int] = {}
        self.places: dict[str, tuple[str, int]] = {}

    def add(self, owner: str, plugins: ConfiguredPlugins, rank: int) -> tuple[tuple[str, str], ...]:
        """Add what is free. Returns what is not, with its owners."""
        before = self._owner.keys() | set()
        lost = self._add(owner, plugins)
        self.ranks |= dict.fromkeys(self._owner.keys() - before, rank)
        return lost

    def _add(self, owner: str, plugins: ConfiguredPlugins) -> tuple[tuple[str, str], ...]:
        lost: list[tuple[str, str]] = []
        if plugins.nvml is not None:
            others = [self._owner[name] for name in (NVML, *_gpu_names(plugins.nvml)) if name in self._owner]
            if others:
                lost.append((NVML, others[0]))
            else:
                self.nvml = plugins.nvml
                self._owner |= dict.fromkeys((NVML, *_gpu_names(plugins.nvml)), owner)
        for at, generic in enumerate(plugins.generic):
            if self._is_free(generic.resource_name, owner, lost):
                self.generic.append(generic)
                self.places[generic.resource_name] = owner, at
        for simulated in plugins.simulated:
            if self._is_free(simulated.resource_name, owner, lost):
                self.simulated.append(simulated)
        return tuple(lost)

    def _is_free(self, name: str, owner: str, lost: list[tuple[str, str]]) -> bool:
        other = self._owner.get(name)
        if other is None and self.nvml is not None and self.nvml.is_instance_name(name):
            other = self._owner[NVML]
        if other is not None:
            lost.append((name, other))
            return False
        self._owner[name] = owner
        return True


def _gpu_names(nvml: NvmlSettings) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*nvml.whole_names(), *nvml.resource_names())))


def _readable_names(plugins: Any) -> Iterator[str]:
    """What a configuration names that is not valid, as far as that can be read."""
    if not isinstance(plugins, dict):
        return
    if plugins.get(NVML) is not None:
        yield NVML
    for kind in ("generic", "simulated"):
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


def _sentence(error: ValueError) -> str:
    return " ".join(str(error).split())


def unmatched(found: Effective, groups: Mapping[str, Sequence[int]]) -> Mapping[str, tuple[str, ...] | None]:
    """By configuration, its groups without a device on the node; None where that is not known yet.

    groups: by resource name, the indexes of those without one.
    """
    known: dict[str, tuple[str, ...] | None] = {}
    for generic in found.plugins.generic:
        owner, at = found.places[generic.resource_name]
        before, indexes = known.setdefault(owner, ()), groups.get(generic.resource_name)
        if before is not None and indexes is not None:
            place = f"spec.plugins.generic[{at}].groups"
            texts = [
                f"{place}[{i}] ({generic.groups[i].key_pattern()[:_MAX_SHORT]})"
                for i in indexes
                if i < len(generic.groups)
            ]
            known[owner] = (*before, *texts)[:_MAX_UNMATCHED]
        else:
            known[owner] = None
    return known


# -- the report ---------------------------------------------------------------------------------------------------------------


def report(outcomes: Mapping[str, Outcome], without: Mapping[str, Sequence[str] | None] | None = None) -> str:
    """For the annotation of the agent's Lease: JSON of at most MAX_REPORT bytes. What has no room is left out, details first.

    without: as unmatched() has it.
    """
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
