"""`python -m hack.demo [MACHINE | observe]`, as `make demo` calls it: Ctrl-C ends it quietly from the first moment on."""

import signal
import sys


def run() -> int:
    # the imports take a second: a KeyboardInterrupt during them would print a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from hack.demo import demo, gpu_demo, observe_demo

    if sys.argv[1:] == ["observe"]:
        return observe_demo.main()
    return gpu_demo.main(sys.argv[1]) if len(sys.argv) > 1 else demo.main()


if __name__ == "__main__":
    sys.exit(run())
