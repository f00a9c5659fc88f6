"""Rules of settings about several keys at once, which a schema cannot state. Pure.

Each check yields path and text of each mistake in an object. It runs if the object itself is valid, or the rule is marked `always`.
The chart's template `_config_checks.tpl` has the same checks.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

Object = Mapping[str, Any]
Problem = tuple[str, str]

WILDCARD: Final = re.compile(r"\*|\?|\[(?:!.|[^!])[^\]]*\]", re.DOTALL)
GPU_NAME: Final = "nvidia.com/gpu"
MEMORY_NAME: Final = "aliyun.com/gpu-mem"
_MOST_SIMULATED: Final = 10_000
_LONGEST_NAME: Final = 63


def is_set(value: Any, rule: Mapping[str, Any]) -> bool:
    """An empty map does not count as set; an empty object does."""
    return value is not None and value not in ("", [], False) and not (value == {} and "additionalProperties" in rule)


def _objects(value: Any) -> Iterator[tuple[int, Object]]:
    return ((at, each) for at, each in enumerate(value if isinstance(value, list) else ()) if isinstance(each, dict))


# -- device files -----------------------------------------------------------------------------------------------------


def group(value: Object, path: str) -> Iterator[Problem]:
    paths = [each for _, each in _objects(value.get("paths"))]
    counts = [len(WILDCARD.findall(each["path"])) for each in paths]
    if len({*counts} - {0}) > 1:
        yield (
            f"{path}.paths",
            "wildcard paths of one group are joined by what their wildcards match, so each needs the same number of "
            "wildcards; split the group",
        )
    naming = [each for each, count in zip(paths, counts, strict=True) if count or not any(counts)]
    if naming and all(each.get("optional") for each in naming):
        yield (
            f"{path}.paths",
            "devices are named after the first path that is not optional, of wildcard paths if there are any; remove "
            "optional from one",
        )


def _name_of(value: Object) -> str:
    """Return the setting that names the devices of a group; "" if it is unreadable."""
    if isinstance(value.get("select"), dict):
        selected = {key: each for key, each in value["select"].items() if each and (key, each) != ("permissions", "rw")}
        if isinstance(selected.get("usb"), dict):
            selected["usb"] = {key: each for key, each in selected["usb"].items() if each}
        return json.dumps(selected, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    paths = [each for _, each in _objects(value.get("paths")) if isinstance(each.get("path"), str)]
    paths.sort(key=lambda each: (bool(each.get("optional")), not WILDCARD.search(each["path"])))
    return str(paths[0]["path"]) if paths else ""


def groups(value: Object, path: str) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for at, each in _objects(value.get("groups")):
        name = _name_of(each)
        if name and first.setdefault(name, at) != at:
            yield (
                f"{path}.groups[{at}]",
                f"its devices are named after {name}, like the devices of groups[{first[name]}]; join them",
            )


def simulated(value: Object, path: str) -> Iterator[Problem]:
    count, parts = value.get("count", 1), value.get("partsPerDevice", 1)
    if count * parts > _MOST_SIMULATED:
        yield (
            f"{path}.partsPerDevice",
            f"{count} devices of {parts} parts are too many; simulate {_MOST_SIMULATED} parts at most",
        )


def names(value: Object, path: str) -> Iterator[Problem]:
    """A resource has one entry among all plugins."""
    found = [
        (f"{path}{'.' if path else ''}{kind}[{at}]", each.get("resourceName"))
        for kind in sorted(key for key in value if isinstance(key, str) and isinstance(value[key], list))
        for at, each in _objects(value.get(kind))
    ]
    nvml = value.get("nvml")
    if isinstance(nvml, dict):
        place = f"{path}{'.' if path else ''}nvml"
        found += [(place, name) for name in dict.fromkeys((*_whole_names(nvml), *(use[0] for use in _uses(nvml))))]
    seen: set[str] = set()
    for place, name in found:
        if isinstance(name, str) and name in seen:
            yield place, f"{name} is named twice; give each resource one entry, with all its groups"
        elif isinstance(name, str):
            seen.add(name)


# -- GPUs -------------------------------------------------------------------------------------------------------------


def nvml(value: Object, path: str) -> Iterator[Problem]:
    both = sorted({*value.get("criticalXids", ())} & {*value.get("harmlessXids", ())})
    if both:
        yield f"{path}.harmlessXids", f"{both[0]} is in criticalXids too; keep it in one of them"
    rules = value.get("sharing", [])
    for (one, rule), (other, later) in combinations(enumerate(rules), 2):
        if _overlap(rule, later):
            yield f"{path}.sharing[{other}]", f"it is for GPUs that sharing[{one}] matches; a GPU has one use"
    yield from _shared_names(value, path)


def _shared_names(value: Object, path: str) -> Iterator[Problem]:
    first: dict[str, tuple[Any, str]] = {}
    prefix = f"{(value.get('resourceName') or GPU_NAME).partition('/')[0]}/mig-"
    refused: set[str] = set()
    for name, parts, who in _uses(value):
        if who in refused:
            continue
        place = f"{path}.{who}" if who.startswith("sharing") else f"{path}.resourceName"
        known, by = first.setdefault(name, (parts, who))
        problem = ""
        if value.get("mig") == "mixed" and name.startswith(prefix):
            problem = f"{name} is a name of MIG instances (mig: mixed); set another resourceName"
        elif len(name.partition("/")[2]) > _LONGEST_NAME:
            problem = f"{name} has more than {_LONGEST_NAME} characters after the slash; set resourceName"
        elif known != parts:
            problem = (
                f"{name} is the name of other devices already ({by}); set another resourceName, or renameByDefault"
            )
        if problem:
            refused.add(who)
            yield place, problem


def _whole_names(value: Object) -> Sequence[Any]:
    models = value.get("modelResourceNames")
    named = [*models.values()] if isinstance(models, dict) else []
    return [*dict.fromkeys(name for name in [value.get("resourceName", GPU_NAME), *named] if isinstance(name, str))]


def _uses(value: Object) -> Iterator[tuple[str, Any, str]]:
    """Yield each resource name, the rules of its devices' parts (None for whole GPUs), and the setting that names it."""
    whole, rules = _whole_names(value), [*_objects(value.get("sharing"))]
    if not any(_is_for_others(rule) for _, rule in rules):
        yield from ((name, None, "GPUs that no rule matches") for name in whole)
    if value.get("mig") == "single":
        yield from ((name, None, "mig: single") for name in whole)
    for at, rule in rules:
        for use in ("whole", "shares", "memory"):
            if isinstance(rule.get(use), dict):
                parts = None if use == "whole" else [use, _alike(rule[use], use)]
                yield from ((name, parts, f"sharing[{at}]") for name in _names_of(rule[use], use, whole))


def _names_of(parts: Object, use: str, whole: Sequence[str]) -> Sequence[str]:
    name = parts.get("resourceName") or (MEMORY_NAME if use == "memory" else "")
    if isinstance(name, str) and name:
        return [name]
    return [f"{each}.shared" for each in whole] if use == "shares" and parts.get("renameByDefault") is True else whole


_LIMITS: Final = {
    "memory": True,
    "smPercent": 0,
    "oversubscribe": True,
    "library": "",
    "preload": "/usr/local/vgpu/ld.so.preload",
    "directory": "/usr/local/vgpu/containers",
    "mountPath": "/tmp/vgpu",
    "lock": "/tmp/vgpulock",
}
_MPS: Final = {"pipeDirectory": "/tmp/nvidia-mps", "shmDirectory": "/dev/shm"}
_PARTS: Final = {"choice": "binpack", "containers": "any", "advertise": "sum"}


def _alike(parts: Object, use: str) -> Object:
    """Return the settings that all rules of one resource must share."""
    found = {**_PARTS, **{key: each for key, each in parts.items() if key in _PARTS}}
    limits = parts.get("limits", {} if use == "memory" else None)
    found["limits"] = {**_LIMITS, **limits} if isinstance(limits, dict) else None
    if use == "memory":
        return {**found, "unit": parts.get("unit", "1Gi")}
    mps = parts.get("mps")
    found["mps"] = {**_MPS, **mps} if isinstance(mps, dict) else None
    return {**found, "failRequestsGreaterThanOne": bool(parts.get("failRequestsGreaterThanOne"))}


def _is_for_others(rule: Object) -> bool:
    return not rule.get("models") and not rule.get("indexes")


def _overlap(one: Object, other: Object) -> bool:
    """Whether both match the same model or index, as far as settings show."""
    if _is_for_others(one) or _is_for_others(other):
        return _is_for_others(one) and _is_for_others(other)
    shared = [{*one.get(key, ())} & {*other.get(key, ())} for key in ("models", "indexes")]
    differ = [
        bool(one.get(key) and other.get(key)) and not both
        for key, both in zip(("models", "indexes"), shared, strict=True)
    ]
    return any(shared) and not any(differ)


# -- the agent itself -------------------------------------------------------------------------------------------------


def settings(value: Object, path: str) -> Iterator[Problem]:
    prefix = f"{path}." if path else ""
    given = [value[key] for key in ("delivery", "runtime") if value.get(key) is not None]
    chosen = [each for each in given if each != "auto"]
    delivery = [*chosen, *given, "none"][0]
    if any(each != delivery for each in chosen):
        yield f"{prefix}runtime", f"is the former name of delivery, which is {delivery}; remove runtime"
    if value.get("advertiseWithoutInjection") is True and delivery != "none":
        yield (
            f"{prefix}advertiseWithoutInjection",
            f"is for delivery none, and the delivery is {delivery}; remove one of them",
        )
    numa = value.get("numaNodes")
    for first, last in re.findall(r"([0-9]+)-([0-9]+)", numa if isinstance(numa, str) else ""):
        if int(first) > int(last):
            yield f"{prefix}numaNodes", f"{first}-{last} ends before it begins: the smaller number is the first"


# -- the host ---------------------------------------------------------------------------------------------------------

# keys that name a path of the host
_HOST_PATHS: Final = frozenset(
    {"path", "hostPath", "library", "preload", "directory", "lock", "pipeDirectory", "shmDirectory"}
)


def outside(plugins: Any, path: str, roots: Iterable[str]) -> Iterator[Problem]:
    """Yield host paths below none of these directories. plugins: of a NodeDeviceConfig, of any shape."""
    allowed = [*roots]
    for key, each in _host_paths(plugins, path):
        if not any(each == root or each.startswith(f"{root.rstrip('/')}/") for root in allowed):
            named = ", ".join(allowed) or "nothing"
            yield key, f"{each[:400]} is not below {named}; add its directory to agents.allowedHostPaths of the chart"


def _host_paths(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield each absolute path of the host with its place. Paths of limits count only with a library."""
    for at, each in enumerate(value if isinstance(value, list) else ()):
        yield from _host_paths(each, f"{path}[{at}]")
    for key, each in value.items() if isinstance(value, dict) else ():
        here = f"{path}.{key}"
        if key == "limits" and isinstance(each, dict):
            yield from _host_paths({**_LIMITS, **each} if each.get("library") else {}, here)
        elif key == "mps" and isinstance(each, dict):
            yield from _host_paths({**_MPS, **each}, here)
        elif key in _HOST_PATHS and isinstance(each, str):
            yield from [(here, each)] if each.startswith("/") else []
        elif key not in ("env", "udev", "modelResourceNames"):
            yield from _host_paths(each, here)


CHECKS: Final[Mapping[str, Callable[[Object, str], Iterator[Problem]]]] = {
    each.__name__: each for each in (group, groups, simulated, names, nvml, settings)
}
