"""Log-in programs; see `nodedevice_kube.exec_plugin`."""

from nodedevice_kube.exec_plugin import Credential, run

__all__ = ["Credential", "run"]
