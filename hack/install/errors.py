"""Errors that stop an install or an uninstall. Each is one sentence with a remedy, which `make install` prints.

InstallError             not possible with this cluster, machine or arguments
└── NoRoute              images cannot reach the nodes; names the three ways
"""


class InstallError(Exception):
    """why: the cause. remedy: an action for the reader."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"{why}: {remedy}")


class NoRoute(InstallError):
    """Images cannot be brought to the nodes from this machine."""
