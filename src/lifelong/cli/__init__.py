"""The command `lifelong`: parsing and printing only."""

import sys

from lifelong.extras import MissingExtraError, require_extra


def command() -> None:
    """What the shell calls: the command line, or what to install for it."""
    try:
        require_extra("tyro", extra="cli")
    except MissingExtraError as error:
        sys.exit(f"lifelong: {error}")
    from lifelong.cli.main import main

    main()
