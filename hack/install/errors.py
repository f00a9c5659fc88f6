"""What stops an install or an uninstall. One sentence with what to do, which `make install` prints.

InstallError             this cluster, machine or set of arguments does not allow it
└── NoRoute              no way from here to the nodes; names the three ways
"""


class InstallError(Exception):
    """why: the cause. remedy: an action for the reader."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"{why}: {remedy}")


class NoRoute(InstallError):
    """Images cannot be brought to the nodes from this machine."""
