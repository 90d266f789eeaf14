"""The command `lifelong`: parsing and printing only."""

import sys

from lifelong.extras import MissingExtraError, require_extra


def command() -> None:
    """Entry point: run the command line, or print which extra to install for it."""
    try:
        require_extra("tyro", extra="cli")
    except MissingExtraError as error:
        sys.exit(f"lifelong: {error}")
    from lifelong.cli.main import main

    main()
