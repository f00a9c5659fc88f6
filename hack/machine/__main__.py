"""`python -m hack.machine`: make what machines need, which takes a network; machines themselves have none but their own."""

import sys

from hack.cluster.build.product_images import product_images
from hack.cluster.errors import ClusterError
from hack.machine.image import machine_image
from hack.machine.packages import why_not_here


def main() -> int:
    if reason := why_not_here():
        print(f"no machine can be had here: {reason}", file=sys.stderr)
        return 0

    def progress(line: str) -> None:
        print(f"  {line}", file=sys.stderr, flush=True)

    try:
        machine_image([image.archive for image in product_images(progress).values()], progress)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
