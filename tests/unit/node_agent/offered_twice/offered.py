"""Offers, as tests make them: what a source shows of each device, and what pods hold."""

from collections.abc import Collection, Mapping, Sequence

from nodedevice_agent.identity import Kind
from nodedevice_agent.offered_twice.compare import DeviceIDs, Finding, Kept, Offer, find
from nodedevice_agent.offered_twice.files import Node
from nodedevice_agent.offered_twice.sources import Raw, Source, identities_of

from tests.fakes.steps import finished

_NAMES: Mapping[Source, str] = {
    Source.KUBELET: "kubelet.example.com/gpu",
    Source.DRA: "driver.example.com/devices",
    Source.PLUGIN: "plugin.example.com/gpu",
    Source.BUILT_IN: "ours.example.com/gpu",
}


def offer(
    source: Source,
    raws: Sequence[Raw] = (),
    *,
    name: str = "",
    held: Collection[str] = (),
    files: Sequence[tuple[DeviceIDs, Sequence[Node]]] = (),
    out: Collection[str] = (),
    is_only: bool = False,
) -> Offer:
    """files: of devices that are held together. out: devices that no pod can get."""
    name = name or _NAMES[source]
    statements = [
        (ids, identities_of(source, Raw(nodes=tuple(nodes), is_only=is_only), is_of_all=False)) for ids, nodes in files
    ]
    program = source.name if source is Source.BUILT_IN else f"{source.name} {name.partition('/')[0]}"
    return Offer(
        name,
        source,
        program,
        program if source is Source.DRA else name,
        {raw.id: raw for raw in raws},
        lambda device_id: device_id not in out,
        lambda device_id: device_id in held,
        {raw.id: found for raw in raws if (found := identities_of(source, raw))},
        statements,
        name.partition("/")[0],
    )


def findings(*offers: Offer, kept: Kept | None = None) -> dict[str, tuple[Finding, ...]]:
    return finished(find(offers, Kept() if kept is None else kept))


def pairs(*offers: Offer) -> set[frozenset[tuple[str, DeviceIDs]]]:
    """Each two devices that are one, by resource name and IDs."""
    return {
        frozenset({(name, here), (finding.other.resource_name, there)})
        for name, each in findings(*offers).items()
        for finding in each
        for here, there in finding.devices
    }


UUID = "GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"
PCI = "0000:1b:00.0"
NUMBER = "c188:3"
PATH = "/dev/ttyUSB3"

# What a source shows of one and the same device, by kind: as all devices, and as held ones.
SHOWN: Mapping[tuple[Source, Kind, bool], Raw] = {
    (Source.KUBELET, Kind.UUID, True): Raw(f"{UUID}::0"),
    (Source.KUBELET, Kind.PCI, True): Raw("00000000:1B:00.0"),
    (Source.KUBELET, Kind.FILE, True): Raw(
        "/dev/serial/by-id/usb-1", nodes=(Node("/dev/serial/by-id/usb-1", NUMBER, PATH, True),)
    ),
    (Source.KUBELET, Kind.FILE, False): Raw("some-name", nodes=(Node(PATH, NUMBER, PATH, True),)),
    (Source.DRA, Kind.UUID, True): Raw("gpu-0", {"gpu.example.com/UUID": UUID}),
    (Source.DRA, Kind.PCI, True): Raw("gpu-0", {"resource.kubernetes.io/pciBusID": PCI}),
    (Source.DRA, Kind.SERIAL, True): Raw(
        "tty-0", {"x.example.com/serial": "A50285BI", "x.example.com/vendor": "0x0403"}
    ),
    (Source.DRA, Kind.FILE, False): Raw("tty-0", nodes=(Node("/dev/other3", NUMBER),)),
    (Source.PLUGIN, Kind.UUID, True): Raw(UUID.lower()),
    (Source.PLUGIN, Kind.PCI, True): Raw(f"{PCI}::1"),
    (Source.PLUGIN, Kind.FILE, True): Raw(PATH, nodes=(Node(PATH, NUMBER, PATH, True),)),
    (Source.PLUGIN, Kind.FILE, False): Raw("some-name", nodes=(Node(PATH, NUMBER, PATH, True),)),
    (Source.BUILT_IN, Kind.UUID, True): Raw(UUID, tokens=(UUID, "c195:0")),
    (Source.BUILT_IN, Kind.PCI, True): Raw("card", tokens=("c226:1", f"/devices/pci0000:00/{PCI}/drm")),
    (Source.BUILT_IN, Kind.FILE, True): Raw("ttyUSB3", tokens=(NUMBER, "/devices/pci0000:00/usb1/1-1/1-1:1.0/ttyUSB3")),
    (Source.BUILT_IN, Kind.SERIAL, True): Raw("usb", tokens=("c188:9", "/usb/0403:6001:A50285BI/1.0/ttyUSB#0")),
}


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-{number:012x}"
