"""`spo watch` on a directory, and a browser that looks at it."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))


@contextmanager
def watched(runs: Path) -> Iterator[tuple]:
    """A server that watches a directory, as its process and its address, and a browser."""
    from browser import Browser

    command = [sys.executable, "-m", "spo", "watch", str(runs), "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = re.search(r"http://\S+/", server.stdout.readline())[0]
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            browser = Browser(Path(profile))
            try:
                yield server, url, browser
            finally:
                browser.close()
    finally:
        server.terminate()
        server.wait()
