"""Adds a guest's files to Debian's packages: units, and parts that a minimal system lacks. Writes into a tree; starts
nothing.

A machine's identity comes from outside: name and address on the kernel's command line (`nd.name=`, `nd.ip=`),
certificates and configurations on a second disk, mounted read-only at /opt/node.
"""

from pathlib import Path

PACKAGES = (
    *("systemd", "systemd-sysv", "udev", "dbus", "kmod", "iproute2", "runc", "ca-certificates"),
    *("python3-venv", "procps"),
)
NODE, PROGRAMS = "/opt/node", "/opt/programs"
DOOR_PORT = 2222

_IDENTITY = f"""\
#!/bin/sh
for word in $(cat /proc/cmdline); do
  case $word in nd.name=*) name=${{word#nd.name=}};; nd.ip=*) ip=${{word#nd.ip=}};; nd.clock=*) date -s @${{word#nd.clock=}};; esac
done
hostname "$name"
ip link set lo up
ip address add "$ip/24" dev eth0
ip link set eth0 up
mount -o ro /dev/vdb {NODE}
"""
_UNITS = {
    "nd-identity.service": """\
[Unit]
Description=Name, address and certificates of this machine
DefaultDependencies=no
After=systemd-udevd.service local-fs.target
Before=network.target containerd.service kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/nd-identity
[Install]
WantedBy=multi-user.target
""",
    # as in upstream's own unit
    "containerd.service": f"""\
[Unit]
Description=containerd
After=nd-identity.service dbus.service
Requires=nd-identity.service
[Service]
ExecStart={PROGRAMS}/containerd --config {NODE}/containerd.toml
Environment=PATH={PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNOFILE=1048576
OOMScoreAdjust=-999
[Install]
WantedBy=multi-user.target
""",
    "kubelet.service": f"""\
[Unit]
Description=kubelet
After=containerd.service
[Service]
ExecStart=/bin/sh {NODE}/kubelet.sh
Restart=always
RestartSec=5
[Install]
WantedBy=multi-user.target
""",
    "nd-door.socket": f"""\
[Unit]
Description=A shell for tests, in a network of their own
After=nd-identity.service
[Socket]
ListenStream={DOOR_PORT}
Accept=yes
[Install]
WantedBy=multi-user.target
""",
    "nd-door@.service": """\
[Unit]
Description=A shell for tests
[Service]
ExecStart=-/bin/bash -s
StandardInput=socket
StandardOutput=socket
StandardError=socket
""",
}
# Seconds of an emulated boot each, and of no use here. D-Bus and logind stay: runc's systemd driver and graceful shutdown
# need them.
_MASKED = (
    *(
        "getty.target",
        "serial-getty@ttyS0.service",
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
    ),
    *(
        "e2scrub_all.timer",
        "e2scrub_reap.service",
        "fstrim.timer",
        "systemd-random-seed.service",
        "systemd-timesyncd.service",
    ),
    # it configures no network; units that wait for one, as ours does, would wait two minutes
    *("systemd-networkd.service", "systemd-networkd.socket", "systemd-networkd-wait-online.service"),
    *(
        "modprobe@configfs.service",
        "modprobe@dm_mod.service",
        "modprobe@drm.service",
        "modprobe@efi_pstore.service",
        "modprobe@fuse.service",
        "modprobe@loop.service",
        "proc-sys-fs-binfmt_misc.automount",
    ),
    *("dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount"),
    *(
        "systemd-binfmt.service",
        "systemd-firstboot.service",
        "systemd-network-generator.service",
        "systemd-pcrphase.service",
        "systemd-pcrphase-sysinit.service",
        "systemd-pstore.service",
        "systemd-sysext.service",
        "systemd-sysusers.service",
        "systemd-update-utmp.service",
    ),
)
_MODULES = ("overlay", "bridge", "veth", "fuse", "loop", "virtio_net", "ftdi_sio", "usb-storage", "sd_mod", "tcp_diag")


def furnish(root: Path) -> None:
    """Add the files that a node needs. root: an unpacked minimal Debian."""
    _write(root / "usr/local/sbin/nd-identity", _IDENTITY, 0o755)
    units = root / "etc/systemd/system"
    for name, text in _UNITS.items():
        _write(units / name, text)
    for name in ("nd-identity.service", "containerd.service", "kubelet.service", "nd-door.socket"):
        _link(units / "multi-user.target.wants" / name, f"/etc/systemd/system/{name}")
    for name in _MASKED:
        _link(units / name, "/dev/null")
    _link(units / "default.target", "/lib/systemd/system/multi-user.target")
    # otherwise no sandbox gets a hosts file
    _write(root / "etc/hosts", "127.0.0.1 localhost\n")
    _write(root / "etc/hostname", "machine\n")
    # empty: systemd fills it; with `uninitialized` systemd would reset each unit to its preset first
    _write(root / "etc/machine-id", "")
    _write(root / "etc/modules-load.d/node.conf", "".join(f"{name}\n" for name in _MODULES))
    _write(root / "etc/sysctl.d/node.conf", "net.ipv4.ip_forward = 1\nkernel.panic = 10\nvm.overcommit_memory = 1\n")
    journal = "[Journal]\nStorage=persistent\nSystemMaxUse=64M\nForwardToConsole=no\n"
    _write(root / "etc/systemd/journald.conf.d/node.conf", journal)
    # the kubelet logs a missing folder each second
    for folder in (NODE, PROGRAMS, "/var/lib/kubelet/manifests"):
        (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
