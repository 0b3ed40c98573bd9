"""The command `spo watch`, before it is known whether a browser or a terminal shows the runs."""

import os
from pathlib import Path

from spo.errors import SpoError


def watch_runs(roots: list[Path], address: str, port: int, opens_browser: bool, in_terminal: bool) -> None:
    """Watch until Ctrl-C."""
    for root in roots:
        if os.path.lexists(root) and not root.is_dir():
            raise SpoError(f"{root} is not a directory; accepted are directories of runs and sweeps")
    if in_terminal:
        from spo.watch.text import watch_in_terminal

        watch_in_terminal(roots)
        return
    if not 0 <= port < 2**16:
        raise SpoError(f"--port {port} is not accepted: it must be a whole number from 0 to 65535")
    try:
        from spo.watch.server import serve
    except ImportError:
        raise SpoError("spo watch needs: pip install 'simple-policy-optimization[watch]'; --text works without")
    serve(roots, address, port, opens_browser)
