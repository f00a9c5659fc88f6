"""A reader of a kubelet's directory, for backends that ask for it, on a node without pods."""

from pathlib import Path

from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.reader import KubeletReader


def reader_of(kubelet_dir: Path | str) -> KubeletReader:
    return KubeletReader(KubeletDirectory(Path(kubelet_dir)), {})
