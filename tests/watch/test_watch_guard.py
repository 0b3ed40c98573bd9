"""Who may ask the server for what."""

import asyncio

import pytest

pytest.importorskip("bokeh")

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.websocket import websocket_connect

from made_runs import write_run
from spo.errors import SpoError
from spo.watch.guard import COOKIE, Guard, is_own_host
from spo.watch.server import is_path, make_server
from spo.watch.videos import parse_range

TOKEN = "secret-token"


def request(path="/", host="localhost:5006", method="GET", **headers) -> HTTPServerRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTPServerRequest(method, path, headers=HTTPHeaders({"Host": host} | named), connection=None, host=host)


@pytest.mark.parametrize(
    "host, address, is_own",
    [
        ("localhost:5006", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("[::1]:80", "::1", True),
        ("LOCALHOST", "localhost", True),
        ("localhost.", "127.0.0.1", True),
        ("evil.example:5006", "127.0.0.1", False),
        ("localhost.evil.example", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        ("192.168.1.5:5006", "127.0.0.1", False),
        ("192.168.1.5:5006", "0.0.0.0", True),
        ("evil.example", "0.0.0.0", False),
        ("[::1", "127.0.0.1", False),
        ("localhost:80@evil.example", "127.0.0.1", False),
        ("box.lan", "box.lan", True),
    ],
)
def test_hosts(host, address, is_own):
    assert is_own_host(host, address) == is_own


@pytest.mark.parametrize(
    "asked, status",
    [
        (request(), None),
        (request("/run?run=0/x"), None),
        (request("/ws", Upgrade="websocket", Origin="http://localhost:5006"), None),
        (request("/ws", Upgrade="websocket"), 403),
        (request("/ws", Upgrade="websocket", Origin="http://evil.example"), 403),
        (request("/ws", Upgrade="websocket", Origin="http://localhost:1234"), 403),
        (request("/ws", Origin="null", Upgrade="websocket"), 403),
        (request(Origin="http://evil.example"), 403),
        (request(host="evil.example"), 403),
        (request(method="POST"), 405),
        (request("/autoload.js"), 404),
        (request("/metadata"), 404),
        (request("/../etc/passwd"), 404),
        (request("/static/../x"), 404),
        (request("/assets/page.css"), None),
        (request("/static/js/bokeh.min.js"), None),
    ],
)
def test_requests_on_loopback(asked, status):
    refused = Guard("127.0.0.1", None, is_path).refuse(asked)
    assert (refused and refused[0]) == status


def test_another_address_needs_the_token():
    guard = Guard("0.0.0.0", TOKEN, is_path)
    assert guard.refuse(request(host="10.0.0.2:5006"))[0] == 403
    assert guard.refuse(request("/?token=wrong", host="10.0.0.2"))[0] == 403
    assert guard.refuse(request("/?token=" + TOKEN, host="10.0.0.2")) is None
    assert guard.refuse(request(host="10.0.0.2", Cookie=f"{COOKIE}={TOKEN}")) is None
    assert guard.refuse(request(host="10.0.0.2", Cookie=f"{COOKIE}=wrong"))[0] == 403
    assert guard.refuse(request("/assets/page.css", host="10.0.0.2"))[0] == 403
    socket = {"Upgrade": "websocket", "Origin": "http://10.0.0.2"}
    assert guard.refuse(request("/ws", host="10.0.0.2", **socket))[0] == 403
    assert guard.refuse(request("/ws", host="10.0.0.2", Cookie=f"{COOKIE}={TOKEN}", **socket)) is None
    stranger = socket | {"Origin": "http://evil.example"}
    assert guard.refuse(request("/ws", host="10.0.0.2", Cookie=f"{COOKIE}={TOKEN}", **stranger))[0] == 403
    assert guard.refuse(request(host="rebound.example", Cookie=f"{COOKIE}={TOKEN}"))[0] == 403


@pytest.mark.parametrize(
    "header, part",
    [
        (None, (0, 100)),
        ("bytes=0-", (0, 100)),
        ("bytes=10-19", (10, 20)),
        ("bytes=-5", (95, 100)),
        ("bytes=90-999", (90, 100)),
        ("bytes=200-", (200, 100)),
        ("lines=1-2", (0, 0)),
        ("bytes=a-b", (0, 0)),
        ("bytes=", (0, 0)),
        ("bytes=1-2,4-5", (0, 0)),
    ],
)
def test_parts_of_a_file(header, part):
    assert parse_range(header, 100) == part


def served(root, ask, address="127.0.0.1"):
    """What a function of a client and an address comes to while a server runs."""

    async def run():
        watching = make_server([root], address, 0)
        watching.server.start()
        try:
            return await ask(AsyncHTTPClient(force_instance=True), watching.url)
        finally:
            watching.server.stop()

    return asyncio.run(run())


def test_a_server_answers_as_the_guard_says(tmp_path):
    run = write_run(tmp_path / "run", made=3)
    (run / "evaluation.mp4").write_bytes(bytes(range(100)))
    (run / "videos").symlink_to("/etc")

    async def ask(client, url):
        answers = {}
        asked = {
            "page": HTTPRequest(url),
            "rebound": HTTPRequest(url, headers={"Host": "evil.example"}),
            "part": HTTPRequest(f"{url}video/file?run=0/run", headers={"Range": "bytes=10-19"}),
            "none": HTTPRequest(f"{url}video/file?run=0/../run"),
            "post": HTTPRequest(url, method="POST", body=""),
            "asset": HTTPRequest(f"{url}assets/%2e%2e/server.py"),
            "css": HTTPRequest(f"{url}assets/page.css"),
        }
        for name, what in asked.items():
            answers[name] = await client.fetch(what, raise_error=False)
        try:
            foreign = HTTPRequest(url.replace("http", "ws") + "ws", headers={"Origin": "http://evil.example"})
            await websocket_connect(foreign)
            answers["socket"] = "open"
        except Exception as error:
            answers["socket"] = str(error)
        return answers

    found = served(tmp_path, ask)
    codes = {name: answer.code for name, answer in found.items() if name != "socket"}
    assert codes.pop("asset") in (403, 404)
    assert codes == {"page": 200, "rebound": 403, "part": 206, "none": 404, "post": 405, "css": 200}
    assert b"import" not in found["asset"].body
    assert found["part"].body == bytes(range(10, 20)) and "403" in found["socket"]
    policy = found["page"].headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy and "script-src 'self' 'nonce-" in policy
    assert found["page"].headers["X-Frame-Options"] == "DENY"
    assert found["page"].headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_the_token_moves_from_the_address_to_a_cookie(tmp_path):
    async def ask(client, url):
        url = url.replace("0.0.0.0", "127.0.0.1")
        refused = await client.fetch(url.partition("?")[0], raise_error=False)
        taken = await client.fetch(url, follow_redirects=False, raise_error=False)
        cookie = taken.headers["Set-Cookie"].partition(";")[0]
        page = await client.fetch(HTTPRequest(url.partition("?")[0], headers={"Cookie": cookie}), raise_error=False)
        return url, refused, taken, page

    url, refused, taken, page = served(tmp_path, ask, "0.0.0.0")
    assert "?token=" in url and (refused.code, taken.code, page.code) == (403, 303, 200)
    assert taken.headers["Location"] == "/" and "HttpOnly" in taken.headers["Set-Cookie"]


def test_a_port_that_is_taken_is_told(tmp_path):
    async def ask(client, url):
        with pytest.raises(SpoError, match="cannot be used"):
            make_server([tmp_path], "127.0.0.1", int(url.split(":")[2].strip("/")))
        with pytest.raises(SpoError, match="cannot be used"):
            make_server([tmp_path], "192.0.2.1", 0)  # of nobody

    served(tmp_path, ask)
