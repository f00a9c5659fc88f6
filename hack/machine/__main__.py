"""`python -m hack.machine [SUITE...]`: builds the inputs of machines and their control plane while a network is
available.

Machines have only their own network.
SUITE: of Debian, as trixie, for machines with its kernel besides the usual ones.
"""

import sys

from hack.machine.image import machine_image
from hack.machine.packages import why_not_here
from hack.machine.wheels import agent_wheels
from tests.cluster.build.binaries import find
from tests.cluster.build.product_images import product_images
from tests.cluster.control_plane.layout import CONTROL_PLANE
from tests.cluster.errors import ClusterError


def main() -> int:
    if reason := why_not_here():
        print(f"no machine can be had here: {reason}", file=sys.stderr)
        return 0

    def progress(line: str) -> None:
        print(f"  {line}", file=sys.stderr, flush=True)

    try:
        find((*CONTROL_PLANE, "helm"), progress)
        archives = [image.archive for image in product_images(progress).values()]
        for suite in ("", *sys.argv[1:]):
            machine_image(archives, progress, suite)
        agent_wheels(progress)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
