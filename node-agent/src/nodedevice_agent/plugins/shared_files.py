"""Device files that do not represent a device: any number of processes can open one, each with a state of its own. Pure.

They come with a device, such as /dev/vfio/vfio with each group of VFIO: two pods with the same one still have two devices. Paths
are the kernel's, after links.
"""

_INSTANCE = "each open file is an instance of its own"
_NVIDIA = "a control file that goes with each GPU"
_MEMORY = "without a state; the kernel's memory devices"

# NVIDIA's that a container with any GPU needs, in the order in which it gets them
NVIDIA_CONTROL_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")

MEMORY_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# by path: why
SHARED_FILES = {
    **dict.fromkeys(MEMORY_FILES, _MEMORY),
    "/dev/tty": "each process's own terminal",
    "/dev/ptmx": "each open file is a new pseudoterminal",
    "/dev/kmsg": "each open file has its own place in the log",
    "/dev/fuse": "each open file is one mounted file system",
    "/dev/cuse": "each open file makes one device",
    "/dev/net/tun": "each open file is one interface",
    "/dev/ppp": "each open file is one channel or interface",
    "/dev/uinput": "each open file makes one input device",
    "/dev/uleds": "each open file makes one LED",
    "/dev/uhid": "each open file makes one HID device",
    "/dev/vhci": "each open file makes one Bluetooth controller",
    "/dev/kvm": "each open file makes its own virtual machines",
    "/dev/mshv": "each open file makes its own virtual machines",
    "/dev/vhost-net": "each open file serves one queue pair of one virtual machine",
    "/dev/vhost-vsock": "each open file serves one virtual machine",
    "/dev/vhost-scsi": "each open file serves one virtual machine",
    "/dev/vsock": _INSTANCE,
    "/dev/vfio/vfio": "each open file is one container of VFIO groups, which are the devices",
    "/dev/iommu": "each open file is one address space; the devices are in /dev/vfio/devices",
    "/dev/userfaultfd": _INSTANCE,
    "/dev/ntsync": _INSTANCE,
    "/dev/udmabuf": "each buffer belongs to the process that makes it",
    "/dev/loop-control": "a control file: creates loop devices, which are the devices",
    "/dev/btrfs-control": "a control file of all file systems of a kind",
    "/dev/mapper/control": "a control file of all mapped devices",
    "/dev/zfs": "a control file of all file systems of a kind",
    "/dev/vduse/control": "a control file: makes devices, which are others",
    "/dev/nvme-fabrics": "a control file: makes controllers, which are the devices",
    "/dev/rfkill": "each open file has its own queue of events",
    "/dev/cpu_dma_latency": "each open file is one request",
    "/dev/vga_arbiter": "each open file has its own locks",
    "/dev/snd/timer": "each open file is one timer",
    "/dev/snd/seq": "each open file is one client of the sequencer",
    "/dev/infiniband/rdma_cm": "each open file is one set of connections; the devices are uverbs",
    "/dev/knem": "each open file has its own regions of memory",
    "/dev/xpmem": "each open file has its own segments of memory",
    "/dev/kfd": "each process has its own queues; the devices are render nodes",
    "/dev/gdrdrv": _NVIDIA,
    **dict.fromkeys(NVIDIA_CONTROL_FILES, _NVIDIA),
    "/dev/nvidia-nvswitchctl": _NVIDIA,
    "/dev/nvidia-nvlink": _NVIDIA,
    "/dev/sgx_enclave": "each open file is one enclave",
    "/dev/sgx/enclave": "each open file is one enclave",
    "/dev/sgx_provision": "gives the right to attest, and has no state",
    "/dev/sgx/provision": "gives the right to attest, and has no state",
    "/dev/sgx_vepc": "each open file is memory of one virtual machine",
    "/dev/xen/evtchn": _INSTANCE,
    "/dev/xen/gntalloc": _INSTANCE,
    "/dev/xen/gntdev": _INSTANCE,
    "/dev/xen/privcmd": _INSTANCE,
}
# with a slash at the end: all files in it
SHARED_DIRECTORIES = {"/dev/dma_heap/": "each buffer belongs to the process that allocates it"}


def is_shared_file(path: str) -> bool:
    """Whether the file only comes with devices. path: the kernel's, after links."""
    return path in SHARED_FILES or path.startswith(tuple(SHARED_DIRECTORIES))
