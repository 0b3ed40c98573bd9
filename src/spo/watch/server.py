"""The web server: Bokeh's, behind a guard, on loopback unless told otherwise."""

import logging
import secrets
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bokeh.document import Document
from bokeh.resources import Resources
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from tornado import netutil
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.web import StaticFileHandler

from spo.errors import SpoError
from spo.watch.catalogue import Catalogue
from spo.watch.guard import Guard, Refused, TakeToken, is_loopback, make_headers
from spo.watch.pages import PAGES
from spo.watch.videos import VideoFile

ASSETS = Path(__file__).parent / "assets"
QUIET = ("bokeh", "tornado.access", "tornado.application", "tornado.general")
"""Loggers of a server whose visitors come and go: what is wrong with a run is told on its page."""
SECONDS_UNUSED = 15
"""After which a page that was closed is forgotten."""


class WatchTornado(BokehTornado):
    """Bokeh's application behind the guard, with BokehJS from Bokeh's own wheel whatever the environment says."""

    def __init__(self, guard: Guard, pages: dict[str, Callable[[Document], None]], nonce: str, **options):
        self.guard = guard
        super().__init__(
            pages,
            extra_websocket_origins=["*"],  # the guard has compared it with the host already
            keep_alive_milliseconds=10_000,
            check_unused_sessions_milliseconds=5_000,
            unused_session_lifetime_milliseconds=SECONDS_UNUSED * 1000,
            websocket_max_message_size_bytes=2**20,
            include_headers=[],
            include_cookies=[],
            ico_path="none",
            **options,
        )
        self.add_transform(make_headers(nonce))

    def find_handler(self, request: HTTPServerRequest, **options):
        if refusal := self.guard.refuse(request):
            return self.get_handler_delegate(request, Refused, dict(zip(("status", "sentence"), refusal)))
        if self.guard.has_token(request):
            return self.get_handler_delegate(request, TakeToken, {"token": self.guard.token})
        return super().find_handler(request, **options)

    def resources(self, absolute_url: str | bool | None = None) -> Resources:
        return Resources(mode="server", root_url="/", components=["bokeh", "bokeh-widgets"])


@dataclass(frozen=True)
class Watching:
    """A server that is ready: `run` serves until it is stopped."""

    server: BaseServer
    url: str

    def run(self) -> None:
        self.server.start()
        self.server.io_loop.start()


def is_path(path: str) -> bool:
    """Whether there is something at a path: a page, its WebSocket, or a file that pages are made of."""
    sockets = {f"{page.rstrip('/')}/ws" for page in PAGES}
    return path in PAGES or path in sockets or path.startswith(("/static/js/", "/assets/", "/video/file"))


def make_server(roots: list[Path], address: str, port: int) -> Watching:
    """Bind the port, and make everything that is needed to serve."""
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    catalogue, nonce = Catalogue(roots), secrets.token_urlsafe(16)
    token = None if is_loopback(address) else secrets.token_urlsafe(24)
    try:
        sockets = netutil.bind_sockets(port, address)
    except (OSError, ValueError, OverflowError) as error:
        raise SpoError(f"--address {address} --port {port} cannot be used: {getattr(error, 'strerror', None) or error}")
    tornado = WatchTornado(
        Guard(address, token, is_path),
        {path: partial(build, catalogue=catalogue, nonce=nonce) for path, build in PAGES.items()},
        nonce,
        extra_patterns=[
            (r"/assets/(.*)", StaticFileHandler, {"path": str(ASSETS)}),
            (r"/video/file", VideoFile, {"catalogue": catalogue}),
        ],
    )
    server = HTTPServer(tornado, max_header_size=2**15, max_body_size=2**10, idle_connection_timeout=60)
    server.add_sockets(sockets)
    shown = f"[{address}]" if ":" in address else address
    query = f"?token={token}" if token else ""
    return Watching(BaseServer(IOLoop.current(), tornado, server), f"http://{shown}:{_port(sockets)}/{query}")


def _port(sockets: list) -> int:
    return sockets[0].getsockname()[1]


def serve(roots: list[Path], address: str, port: int, opens_browser: bool) -> None:
    """Serve until Ctrl-C."""
    watching = make_server(roots, address, port)
    print(f"watching {', '.join(map(str, roots))} at {watching.url} (Ctrl-C ends it)", flush=True)
    if opens_browser:
        watching.server.io_loop.call_later(0.1, partial(webbrowser.open, watching.url))
    watching.run()
