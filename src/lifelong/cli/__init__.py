"""The command `lifelong`: parsing and printing only.

What `command` needs is imported in it: a Ctrl-C before its first line would show a traceback.
"""

import signal
import sys


def print_version() -> None:
    """The version, without importing what a command needs."""
    from importlib.metadata import version

    print(f"lifelong {version('lifelong')}")


def heed_dropped_interrupts() -> None:
    """A Ctrl-C that falls into a callback of Python's own, which drops it, is sent again."""
    import threading

    usual, ident = sys.unraisablehook, threading.get_ident()

    def again() -> None:
        signal.pthread_kill(ident, signal.SIGINT)

    def hook(dropped: "sys.UnraisableHookArgs", /) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            threading.Timer(0.01, again).start()  # not from here: it would be dropped too
        else:
            usual(dropped)

    sys.unraisablehook = hook


def command() -> None:
    """Entry point: run the command line, or print which extra to install for it."""
    stops = signal.getsignal(signal.SIGINT)
    if stops is signal.default_int_handler:  # Ctrl-C during imports just ends it: all is as it was
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        print_version()
        return
    from lifelong.extras import MissingExtraError, require_extra

    try:
        require_extra("tyro", extra="cli")
    except MissingExtraError as error:
        sys.exit(f"lifelong: {error}")
    from lifelong.cli.main import main

    heed_dropped_interrupts()
    signal.signal(signal.SIGINT, stops)
    main()
