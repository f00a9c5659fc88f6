"""Decides the use of each GPU of a node, its list entries, and the parts of shared GPUs for a request.

A GPU is whole, or its parts are shares (time slices) or units of its memory; or it is in MIG mode and has instances. A part's ID is
the GPU's UUID with `::` and a number from 0 on, an instance's is its own UUID.
Source: kubelet deviceplugin v1beta1; for shares, the time slicing of NVIDIA's device plugin.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from nodedevice_api.parts import Choice, PartRules, Placement, parent_and_number, part_id

from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice, natural_key
from nodedevice_agent.plugins.nvml.devices import Refused, device_of
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.environment import GPUSHARE_PREFIX
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice
from nodedevice_agent.plugins.nvml.identity import UNKNOWN, OnHost
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reasons import GpuReason
from nodedevice_agent.plugins.nvml.settings import (
    MAX_PARTS,
    MemorySettings,
    NvmlSettings,
    PartsOf,
    SharesSettings,
    size_bytes,
)


class Use(Struct, frozen=True):
    """One GPU's use by one resource; whole without parts and instances. trouble: why it cannot be used so, even if healthy."""

    resource_name: str
    parts: PartsOf | None = None
    instances: tuple[MigInstance, ...] | None = None
    trouble: Trouble | None = None

    def devices(self, gpu: Gpu) -> list[GpuDevice]:
        return [GpuDevice(gpu)] if self.instances is None else [GpuDevice(gpu, each) for each in self.instances]


def uses_of(gpu: Gpu, settings: NvmlSettings) -> list[Use]:
    """One, but for the instances of a GPU in MIG mode, which may have several resources."""
    if gpu.instances is None:
        return [_use_by_rule(gpu, settings)]
    if settings.mig == "none":
        return [replace(_use_by_rule(gpu, settings), trouble=_in_mig_mode(gpu))]
    if not gpu.instances:
        return [Use(settings.resource_names()[0], instances=())]
    if settings.mig == "single":
        return [Use(settings.resource_of(gpu.model), instances=gpu.instances)]
    names = [instance.resource_name(settings.domain) for instance in gpu.instances]
    return [
        Use(name, instances=tuple(each for each, its in zip(gpu.instances, names, strict=True) if its == name))
        for name in dict.fromkeys(names)
    ]


def _use_by_rule(gpu: Gpu, settings: NvmlSettings) -> Use:
    """The first rule that matches counts; with a second one, the GPU is listed but not offered."""
    whole = settings.resource_of(gpu.model)
    matching = [(place, rule) for place, rule in enumerate(settings.sharing) if rule.matches(gpu.model, gpu.index)]
    others = [(place, rule) for place, rule in enumerate(settings.sharing) if rule.is_for_others]
    chosen = matching or others
    if not chosen:
        return Use(whole)
    rule = chosen[0][1]
    (name,) = rule.names((whole,))
    if len(chosen) == 1:
        return Use(name, rule.parts)
    rules = " and ".join(f"sharing[{place}] ({each.text()})" for place, each in chosen)
    message = (
        f"GPU {gpu.uuid} (index {gpu.index}, {gpu.model}) matches {rules}; change nvml.sharing so that one rule does"
    )
    return Use(name, rule.parts, trouble=Trouble(GpuReason.TWO_SHARING_RULES, message))


def _in_mig_mode(gpu: Gpu) -> Trouble:
    message = f"GPU {gpu.uuid} is in MIG mode, excluded by nvml.mig: none; set single or mixed, or end MIG mode (nvidia-smi -mig 0)"
    return Trouble(GpuReason.MIG_MODE, message)


def count_of(gpu: Gpu, parts: PartsOf) -> int | Trouble:
    """How many parts this GPU has, or why it cannot be listed in parts."""
    if isinstance(parts, SharesSettings):
        return parts.replicas
    if gpu.memory_bytes is None:
        return Trouble(GpuReason.MEMORY_UNKNOWN, f"the driver does not report how much memory GPU {gpu.uuid} has")
    count = (gpu.memory_bytes - size_bytes(parts.reserve)) // size_bytes(parts.unit)
    size = f"GPU {gpu.uuid} ({gpu.model}) has {gpu.memory_bytes >> 20} MiB"
    if count < 1:
        message = f"{size}, less than one unit of {parts.unit} after the reserve of {parts.reserve}; set smaller ones"
        return Trouble(GpuReason.UNIT_TOO_LARGE, message)
    if count > MAX_PARTS:
        message = f"{size}, which is more than {MAX_PARTS} units of {parts.unit}; set a larger unit"
        return Trouble(GpuReason.UNIT_TOO_SMALL, message)
    return count


class Listing(Struct, frozen=True):
    """One resource's list. parents: the GPUs of parts. troubles: of the list as a whole."""

    devices: tuple[PluginDevice, ...] = ()
    parents: tuple[PluginDevice, ...] = ()
    troubles: tuple[Trouble, ...] = ()


def listing(
    uses: Sequence[tuple[Gpu, Use]],
    trouble_of: Callable[[str], Trouble | None],
    host: OnHost = UNKNOWN,
    trouble_of_instance: Callable[[str, MigInstance], Trouble | None] = lambda uuid, instance: None,
) -> Listing:
    """uses: the GPUs of one resource, in order. trouble_of_instance: what an instance has besides its GPU's trouble."""
    devices: list[PluginDevice] = []
    above: list[PluginDevice] = []
    troubles: list[Trouble] = []
    differ = _profiles_differ([use for _, use in uses])
    for gpu, use in uses:
        whole = device_of(gpu, use.trouble or trouble_of(gpu.uuid), host)
        if use.instances is not None:
            troubles += [] if use.instances else [_no_instances(gpu)]
            for each in use.instances:
                trouble = trouble_of(gpu.uuid) or trouble_of_instance(gpu.uuid, each) or differ
                devices.append(_instance(device_of(gpu, trouble, host), each, host, gpu))
            continue
        if use.parts is None:
            devices.append(whole)
            continue
        count = count_of(gpu, use.parts)
        if isinstance(count, Trouble):
            troubles.append(count)
            continue
        above.append(_parent(whole, gpu, use.parts, count))
        devices += _parts(whole, count)
    return Listing(tuple(devices), tuple(above), tuple(troubles))


def _parts(whole: PluginDevice, count: int) -> Iterator[PluginDevice]:
    """All parts share one object for their common fields."""
    for number in range(count):
        yield PluginDevice(
            part_id(whole.id, number),
            whole.is_healthy,
            whole.numa_nodes,
            parent=whole.id,
            identity=whole.identity,
            files=whole.files,
            is_shared=True,
        )


def _profiles_differ(uses: Sequence[Use]) -> Trouble | None:
    """Why instances cannot be offered under one name: a container would get any of different devices."""
    kinds = {each.profile for use in uses for each in use.instances or ()}
    wholes = ["whole GPUs"] if any(use.instances is None for use in uses) else []
    if not kinds or len(kinds) + len(wholes) == 1:
        return None
    named = " and ".join([*sorted(kinds), *wholes])
    message = f"with nvml.mig: single all devices of one name have to be of one profile, and there are {named}; set mig: mixed"
    return Trouble(GpuReason.MIG_PROFILES_DIFFER, message)


def _no_instances(gpu: Gpu) -> Trouble:
    message = f"GPU {gpu.uuid} is in MIG mode and has no instances; make some (nvidia-smi mig -cgi) or end MIG mode"
    return Trouble(GpuReason.NO_MIG_INSTANCES, message)


def _instance(whole: PluginDevice, instance: MigInstance, host: OnHost, gpu: Gpu) -> PluginDevice:
    """The instance shares its GPU with other instances, which have the same number of /dev/nvidiaN."""
    attributes = {**dict(whole.attributes), **instance.attributes(), **host.attributes(instance.uuid)}
    return replace(
        whole,
        id=instance.uuid,
        attributes=tuple(sorted(attributes.items())),
        identity=(*whole.identity, instance.uuid),
        files=host.files(GpuDevice(gpu, instance)),
        is_shared=True,
    )


def _parent(whole: PluginDevice, gpu: Gpu, parts: PartsOf, count: int) -> PluginDevice:
    """The physical device, with attributes that describe a part."""
    if isinstance(parts, MemorySettings):
        unused = (gpu.memory_bytes or 0) - count * size_bytes(parts.unit)
        more, size = (
            {"unitBytes": str(size_bytes(parts.unit)), "unusedBytes": str(unused)},
            f"{size_bytes(parts.unit) >> 20}Mi",
        )
    else:
        more, size = {"replicas": str(parts.replicas)}, f"1/{parts.replicas}"
    attributes = tuple(sorted({**dict(whole.attributes), **more}.items()))
    # a parent is never allocated: only its parts are
    return replace(whole, attributes=attributes, part_size=size, identity=(), files=())


class HeldParts(Struct, frozen=True):
    """The number of parts of one GPU in a container, and their kind."""

    gpu: Gpu
    parts: PartsOf
    count: int


def memory_mib(held: HeldParts, remedy: str) -> int:
    """Units times their size; of a share, its part of the GPU's memory without the reserve. Raises Refused with the remedy."""
    parts = held.parts
    if isinstance(parts, MemorySettings):
        return held.count * size_bytes(parts.unit) >> 20
    if held.gpu.memory_bytes is None:
        raise Refused(f"the driver does not report how much memory GPU {held.gpu.uuid} has; {remedy}")
    limit = held.count * ((held.gpu.memory_bytes - size_bytes(parts.reserve)) // parts.replicas >> 20)
    if limit < 1:
        raise Refused(
            f"GPU {held.gpu.uuid} has {held.gpu.memory_bytes >> 20} MiB, nothing for a share after the reserve of "
            f"{parts.reserve}; set a smaller reserve",
        )
    return limit


def parents(device_ids: Iterable[str]) -> Counter[str]:
    return Counter(found[0] for found in map(parent_and_number, device_ids) if found is not None)


def gpushare_variables(held: HeldParts) -> dict[str, str]:
    """The variables with which programs for gpushare limit themselves, in units; empty for shares.

    The memory of the GPU counts without the reserve, so that CONTAINER / DEV is the fraction that a program may take. POD is what
    the container has, as in gpushare's responses.
    Source: AliyunContainerService/gpushare-device-plugin pkg/gpu/nvidia/allocate.go @ 0f2eade.
    """
    if not isinstance(held.parts, MemorySettings) or held.gpu.memory_bytes is None:
        return {}
    index = {} if held.gpu.index is None else {"IDX": held.gpu.index}
    units = {"CONTAINER": held.count, "POD": held.count, "DEV": held.gpu.memory_bytes // size_bytes(held.parts.unit)}
    return {f"{GPUSHARE_PREFIX}{name}": str(value) for name, value in sorted({**index, **units}.items())}


def check_request(device_ids: Collection[str], parts: PartsOf) -> None:
    """Raises Refused if one container cannot have these parts."""
    if isinstance(parts, SharesSettings):
        if parts.fail_requests_greater_than_one and len(device_ids) > 1:
            raise Refused(
                f"request for {len(device_ids)} is too large: maximum request size for shared resources is 1; "
                f"found {len(device_ids)}",
            )
    elif len(parents(device_ids)) > 1:
        of = ", ".join(f"{count} of {uuid}" for uuid, count in sorted(parents(device_ids).items()))
        raise Refused(f"the units of one container have to be of one GPU, and these are {of}; delete the pod")


def preferred_parts(rules: PartRules, free: Collection[str], must_include: Collection[str], size: int) -> list[str]:
    """Choose `size` parts, must_include among them, by the rules as far as possible. For a kubelet: our manager chooses itself."""
    held, by_parent = parents(must_include), _by_parent(free)
    is_single, is_apart = (rules.placement is each for each in (Placement.SAME_PARENT, Placement.DISTINCT_PARENTS))
    sign = 1 if rules.choice is Choice.BINPACK else -1
    wanted = size - len(must_include)

    def rank(parent: str) -> tuple[bool, bool, int, tuple[tuple[str, int], ...]]:
        count = len(by_parent[parent])
        is_new = (parent not in held) is is_single
        return is_new, is_single and count < wanted, sign * count, natural_key(parent)

    ranked = sorted(
        (turn if is_apart else 0, rank(parent), turn, part)
        for parent, parts in by_parent.items()
        for turn, part in enumerate(parts)
    )
    return [*sorted(must_include, key=natural_key), *(part for *_, part in ranked[:wanted])]


def _by_parent(device_ids: Iterable[str]) -> Mapping[str, list[str]]:
    made: dict[str, list[str]] = {}
    for device_id in sorted(device_ids, key=natural_key):
        found = parent_and_number(device_id)
        if found is not None:
            made.setdefault(found[0], []).append(device_id)
    return made
