"""`kubectl nodedevice`: what a cluster's devices do, for people. `program` has the commands."""

import sys


def main() -> None:
    """Run the command line; ends the process."""
    from kubectl_nodedevice.program import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
