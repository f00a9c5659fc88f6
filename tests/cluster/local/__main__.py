"""`python -m tests.cluster.local up`, as `make up` calls it: Ctrl-C ends it quietly from the first moment on."""

import signal


def run() -> None:
    # imports take a second, in which a KeyboardInterrupt would print a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tests.cluster.local.local import main

    main()


if __name__ == "__main__":
    run()
