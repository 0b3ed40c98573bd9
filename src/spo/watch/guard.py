"""Who may ask the server for what: the host it is asked as, the page that asks, the token, and the paths there are."""

import hmac
import ipaddress
import socket
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode, urlsplit

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform, RequestHandler

COOKIE = "spo-watch"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def split_host(host: str) -> str:
    """Take the name out of a Host header: without the port, the brackets of IPv6 and a final dot; "" if it has none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def is_own_host(host: str, address: str) -> bool:
    """Whether a request asks for this machine by a name that no stranger's DNS can point here."""
    name = split_host(host)
    if name in LOOPBACK:
        return True
    if is_loopback(address):
        return False
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return name in {address.lower(), socket.gethostname().lower()}


def is_own_origin(request: HTTPServerRequest) -> bool:
    """Whether the page that asks, where a browser names one, is a page of this server; a WebSocket must name one."""
    origin = request.headers.get("Origin")
    if origin is None:
        return request.headers.get("Upgrade", "").lower() != "websocket"
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == request.host.lower()


class Guard:
    """Decides on every request before any handler sees it."""

    def __init__(self, address: str, token: str | None, is_path: Callable[[str], bool]):
        self.address, self.token, self.is_path = address, token, is_path

    def refuse(self, request: HTTPServerRequest) -> tuple[int, str] | None:
        """Say why a request is not answered, with its status; None if it is."""
        if not is_own_host(request.host, self.address):
            return 403, "This server answers to its own address only."
        if not is_own_origin(request):
            return 403, "This server answers to its own pages only."
        if request.method not in ("GET", "HEAD"):
            return 405, "This server only shows; there is nothing to send to it."
        if not self.is_path(request.path):
            return 404, "There is no such page."
        if self.token and not (self._has_cookie(request) or self.has_token(request)):
            return 403, "This page needs the token that spo watch printed, as in http://…/?token=…"
        return None

    def has_token(self, request: HTTPServerRequest) -> bool:
        """Whether the address has the token in it; it then moves to a cookie."""
        given = parse_qs(request.query).get("token", [""])[0]
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def _has_cookie(self, request: HTTPServerRequest) -> bool:
        try:
            given = SimpleCookie(request.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return given is not None and hmac.compare_digest(given.value.encode(), self.token.encode())


class Refused(RequestHandler):
    """Answers with a sentence."""

    def initialize(self, status: int, sentence: str) -> None:
        self.status, self.sentence = status, sentence

    def prepare(self) -> None:
        self.set_status(self.status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(self.sentence + "\n")


class TakeToken(RequestHandler):
    """Puts the token from the address into a cookie, and leads on to the same page without it."""

    def initialize(self, token: str) -> None:
        self.token = token

    def prepare(self) -> None:
        self.set_cookie(COOKIE, self.token, httponly=True, samesite="Lax")
        kept = {name: values for name, values in parse_qs(self.request.query).items() if name != "token"}
        query = urlencode(kept, doseq=True)
        # One slash and no more: two would lead to another machine.
        self.redirect("/" + self.request.path.lstrip("/") + (f"?{query}" if query else ""), status=303)


def make_headers(nonce: str) -> type[OutputTransform]:
    """Make what adds to every answer the headers that keep a page from loading, running or being anything else."""

    class Headers(OutputTransform):
        def __init__(self, request: HTTPServerRequest):
            self.host = request.host if split_host(request.host) else "localhost"

        def transform_first_chunk(
            self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
        ) -> tuple[int, HTTPHeaders, bytes]:
            for name, value in security_headers(nonce, self.host).items():
                headers[name] = value
            return status_code, headers, chunk

    return Headers


def security_headers(nonce: str, host: str) -> dict[str, str]:
    policy = {
        "default-src": "'none'",
        "script-src": f"'self' 'nonce-{nonce}'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "media-src": "'self'",
        "connect-src": f"'self' ws://{host}",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
