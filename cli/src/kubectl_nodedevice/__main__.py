"""`kubectl nodedevice`: what a cluster's devices do, for people. `program` has the commands."""

import signal
import sys


def main() -> None:
    """Run the command line; ends the process."""
    # Ctrl-C ends it at once, as it ends every small program; nothing is half done then, as each change is one request
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kubectl_nodedevice.program import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
