"""`make install` and `make uninstall`: from a clone to the cluster of the current kubeconfig, and back.

python -m hack.install install|uninstall [--registry PREFIX] [--values FILE] [--builder NAME] [--containerd SOCKET] [--plan] ...
"""

import sys

from nodedevice_common.safe_output import guard_output

from hack.install.arguments import parse
from hack.install.errors import InstallError
from hack.install.install import install
from hack.install.steps import Steps
from hack.install.uninstall import uninstall
from hack.release.errors import ReleaseError
from tests.cluster.errors import ClusterError


def main() -> None:
    guard_output()
    command, arguments = parse(sys.argv[1:])
    steps = Steps(command)
    try:
        (install if command == "install" else uninstall)(arguments, steps)
    except (InstallError, ReleaseError, ClusterError) as exc:
        sys.exit(f"{command}: {exc}")
    except OSError as exc:
        sys.exit(f"{command}: {exc.filename or 'this machine'}: {exc.strerror}: make room there, or let it be written")
    except (KeyboardInterrupt, EOFError):
        sys.exit(f"{command}: interrupted; repeat the command to continue")


if __name__ == "__main__":
    main()
