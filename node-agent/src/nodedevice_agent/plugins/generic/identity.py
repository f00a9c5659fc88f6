"""Computes the places in sysfs that identify the device of a device file. Pure.

They are tokens of its identity (nodedevice_agent/identity.py). Further tokens are its number, and the same places without the
kernel's numbers (lasting_places.py).
Siblings are two devices: the ports of an adapter, the video nodes of a camera. A device that drives all of them has a place above
them.
"""

import re
from collections.abc import Iterator

from nodedevice_agent.identity import iommu_token
from nodedevice_agent.plugins.generic.functions import Node

_SCSI_DEVICE = re.compile(r"\d+:\d+:\d+:\d+")
_VFIO_GROUP = re.compile(r"(?:noiommu-)?(\d+)")
_INPUT = re.compile(r"input\d+")
_OSS = re.compile(r"(dsp|adsp|audio|mixer|midi|amidi|dmmidi|admmidi)\d*")
_SCSI_COMPANIONS = frozenset({"bsg", "scsi_changer", "scsi_generic", "scsi_tape"})


def places(node: Node) -> tuple[str, ...]:
    """Places in sysfs of the hardware behind the file: the file's own place, and the place of the device that it drives.

    So a disk and its sg file are one device, and the disk's partitions are parts of both and not of each other.
    """
    return tuple(dict.fromkeys((node.sysfs, *_driven(node), *node.also)))


def _driven(node: Node) -> Iterator[str]:
    """Places above the ones of its other files, by subsystem. In other subsystems: a device of its own, with everything below."""
    base, name = node.sysfs.rpartition("/")[::2]
    # of its parent's other classes: /devices/.../PARENT/CLASS/NAME
    parent = base.rpartition("/")[0]
    match node.subsystem:
        case subsystem if subsystem in _SCSI_COMPANIONS and _SCSI_DEVICE.fullmatch(node.parent.rpartition("/")[2]):
            yield node.parent
        case "nvme-generic":
            # ng0n1 is nvme0n1
            yield f"{base}/nvme{name.removeprefix('ng')}"
        case "mmc_rpmb":
            # mmcblk0rpmb: a part of the card as mmcblk0boot0 is, and none of a partition
            yield f"{base}/block/{name.removesuffix('rpmb')}/{name}"
        case "mtd" if name.endswith("ro"):
            yield f"{base}/{name.removesuffix('ro')}"
        case "drm" | "accel" | "lirc":
            # card and render node of one GPU, and its DisplayPort channels; an accelerator and its control file; and lirc: what
            # the input of a remote control is made from
            yield base
        case "graphics":
            yield f"{parent}/drm"
        case "hidraw" | "usbmisc":
            # raw access to what the inputs are made from; usbmisc: one function of a USB device, such as the kernel's hiddev
            yield node.parent
        case "input" if _INPUT.fullmatch(base.rpartition("/")[2]):
            # event3, mouse0 and js0 of one input
            yield base
        case "media":
            # sets up the pipeline of all video and DVB files
            yield from (f"{base}/video4linux", f"{base}/dvb")
        case "sound" if _OSS.fullmatch(name):
            # the PCMs and the mixer under older names
            yield base
        case "misc" if name == "watchdog":
            # the first one under its older name
            yield f"{parent}/watchdog/watchdog0"
        case "vc":
            # the screen of a console
            yield f"{parent}/tty/tty{name.lstrip('vcsau') or 0}"
        case "tpmrm":
            yield f"{parent}/tpm/{name.replace('tpmrm', 'tpm')}"
        case "ppdev":
            yield f"{parent}/printer"
        case "infiniband_verbs":
            # the adapter; MAD files are of its ports
            yield f"{parent}/infiniband_mad"
        case "infiniband_mad" if name.startswith("issm"):
            yield f"{base}/umad{name.removeprefix('issm')}"
        case "vfio":
            if group := _VFIO_GROUP.fullmatch(name):
                yield iommu_token(group[1])
