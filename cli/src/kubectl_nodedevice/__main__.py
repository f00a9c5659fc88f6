"""Starts `kubectl nodedevice`. No other module imports it."""

# Comes first: during the import of `signal` Ctrl-C would print a traceback.
import _signal
import gc
import sys

# Ctrl-C ends the process at once. This loses nothing, as each change is one request.
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    # lists of a large cluster are many objects without cycles
    gc.set_threshold(100_000)
    from kubectl_nodedevice.program import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
