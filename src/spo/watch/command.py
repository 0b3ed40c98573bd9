"""The command `spo watch`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spo.errors import Refusal


@dataclass(frozen=True)
class WatchArguments:
    """Shows runs and sweeps as they are written: in the browser, or in the terminal."""

    directories: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[DIR ...]")] = ("runs",)
    """Directories of runs and sweeps, or runs themselves."""
    port: int = 5006
    """The port to serve at (0: any that is free)."""
    address: str = "127.0.0.1"
    """The address to serve at. Any but this machine's own needs the token that is printed."""
    browser: bool = True
    """Opens the page in the browser."""
    text: bool = False
    """Draws a table in the terminal instead."""


def watch(given: WatchArguments) -> None:
    """Watch until Ctrl-C."""
    roots = [Path(directory) for directory in given.directories or ("runs",)]
    for root in roots:
        if os.path.lexists(root) and not root.is_dir():
            raise Refusal(f"{root} is not a directory; accepted are directories of runs and sweeps")
    if given.text:
        from spo.watch.text import watch_in_terminal

        watch_in_terminal(roots)
        return
    if not 0 <= given.port < 2**16:
        raise Refusal(f"--port {given.port} is not accepted: it must be a whole number from 0 to 65535")
    try:
        from spo.watch.server import serve
    except ImportError:
        raise Refusal("spo watch needs: pip install 'simple-policy-optimization[watch]'; --text works without")
    serve(roots, given.address, given.port, given.browser)
