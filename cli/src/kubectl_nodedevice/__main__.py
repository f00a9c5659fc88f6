"""`kubectl nodedevice`: what a cluster's devices do, for people. `program` has the commands.

Imported by nothing but its start.
"""

# before the import of `signal`, during which Python would print a traceback
import _signal
import sys

# Ctrl-C ends it at once, as it ends every small program; nothing is half done then, as each change is one request
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    """Run the command line; ends the process."""
    from kubectl_nodedevice.program import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
