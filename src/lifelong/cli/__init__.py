"""The command `lifelong`: parsing and printing only."""

import signal
import sys

from lifelong.extras import MissingExtraError, require_extra


def print_version() -> None:
    """The version, without importing what a command needs."""
    from importlib.metadata import version

    print(f"lifelong {version('lifelong')}")


def command() -> None:
    """Entry point: run the command line, or print which extra to install for it."""
    stops = signal.getsignal(signal.SIGINT)
    if stops is signal.default_int_handler:  # Ctrl-C during imports just ends it: all is as it was
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        print_version()
        return
    try:
        require_extra("tyro", extra="cli")
    except MissingExtraError as error:
        sys.exit(f"lifelong: {error}")
    from lifelong.cli.main import main

    signal.signal(signal.SIGINT, stops)
    main()
