"""Policies on the Hub, by way of a stand-in that speaks as much of its HTTP as pushing and loading need."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import spo
from spo import cli
from spo.errors import SpoError
from spo.runs import hub
from spo.runtime.files import LARGEST_HEADER

constants = pytest.importorskip("huggingface_hub.constants")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TINY = {"preset": "classic", "envs": 2, "horizon": 16, "minibatches": 2, "epochs": 1, "hidden": (8,), "steps": 64}


class StandIn(BaseHTTPRequestHandler):
    """Repositories as dictionaries of files; what is asked for elsewhere is not found."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        repositories = self.server.repositories
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            repositories.setdefault(name, {})
            return self.answer({"url": f"{self.server.url}/{name}"})
        if self.path == "/api/validate-yaml":  # of the card
            return self.answer({"errors": [], "warnings": []})
        name, verb = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main.*", self.path).groups()
        if verb == "preupload":
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            return self.answer({"files": [file | {"shouldIgnore": False} for file in files]})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                repositories[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        self.answer({"commitUrl": f"{self.server.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT})

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+?)(\?.*)?", self.path)
        files = self.server.repositories.get(found[1]) if found else None
        if files is None:
            return self.answer({}, 404, {"X-Error-Code": "RepoNotFound"})
        if found[3] not in files:
            return self.answer({}, 404, {"X-Error-Code": "EntryNotFound"})
        content = files[found[3]]
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        self.answer(content, 200, {"ETag": etag, "X-Repo-Commit": COMMIT, "X-Linked-Size": str(len(content))})

    def answer(self, content, code=200, headers=()):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A Hub of this machine, with a cache of its own and a token that is none."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    server.url, server.repositories = f"http://127.0.0.1:{server.server_port}", {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(hub, "ENDPOINT", server.url)
    monkeypatch.setattr(hub, "CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    # Tests of language models in the same process say that there is no Hub.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("hub") / "run"
    return spo.train("CartPole-v1", **TINY, critic_hidden=(8,), compile="off", quiet=True, out=str(out)).directory


def test_what_is_pushed_is_loaded_again(run, server, capsys):
    cli.dispatch(["push", str(run), "someone/cart-pole"])
    assert "hf://someone/cart-pole" in capsys.readouterr().out
    files = server.repositories["someone/cart-pole"]
    assert set(files) == {"README.md", "settings.json", "policy.json", "policy.safetensors"}
    assert files["policy.safetensors"] == (run / "policy/policy.safetensors").read_bytes()
    card = files["README.md"].decode()
    assert card.startswith("---\nlibrary_name:") and 'spo.load("hf://someone/cart-pole")' in card
    assert str(run) not in card + files["settings.json"].decode()
    policy, observations = spo.load("hf://someone/cart-pole"), np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_array_equal(policy.act(observations), spo.load(run).act(observations))


def test_a_video_goes_along(run, server, tmp_path):
    (tmp_path / "film.mp4").write_bytes(b"moving")
    hub.push(run, "someone/filmed", video=str(tmp_path / "film.mp4"))
    assert server.repositories["someone/filmed"]["replay.mp4"] == b"moving"
    with pytest.raises(SpoError, match="--video .*none.mp4 is not a file"):
        hub.push(run, "someone/filmed", video=str(tmp_path / "none.mp4"))


def tampered(files: dict[str, bytes]) -> dict[str, bytes]:
    content = bytearray(files["policy.safetensors"])
    content[-1] ^= 1
    return files | {"policy.safetensors": bytes(content)}


def longer(files: dict[str, bytes]) -> dict[str, bytes]:
    return files | {"policy.safetensors": files["policy.safetensors"] + bytes(LARGEST_HEADER)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (tampered, "does not match the checksum"),
        (longer, "policy.safetensors of someone/other has .* bytes; accepted are at most"),
        (lambda files: files | {"policy.json": b"[]"}, "policy.json describes no policy"),
        (lambda files: files | {"policy.json": b"{" * 20_000_000}, "policy.json of someone/other has 20000000 bytes"),
        (lambda files: {"README.md": b"a story"}, "hf://someone/other holds no policy"),
    ],
)
def test_a_file_of_others_is_proved_first(run, server, change, words):
    hub.push(run, "someone/cart-pole")
    server.repositories["someone/other"] = change(server.repositories["someone/cart-pole"])
    with pytest.raises(SpoError, match=words):
        spo.load("hf://someone/other")


def test_refusals(run, server, tmp_path, monkeypatch):
    with pytest.raises(SpoError, match="hf://no/body is not on the Hub, or not yours to see"):
        spo.load("hf://no/body")
    for name in ("hf://cart-pole", "hf://a/../b", "hf://"):
        with pytest.raises(SpoError, match="it must be user/name"):
            spo.load(name)
    with pytest.raises(SpoError, match="'cart-pole' is not accepted: it must be user/name"):
        cli.dispatch(["push", str(run), "cart-pole"])
    with pytest.raises(
        SpoError, match="^hf://a/b is a policy on the Hub, not a run directory: spo.load and spo export"
    ):
        cli.dispatch(["eval", "hf://a/b"])
    with pytest.raises(SpoError, match="is not a run directory"):
        cli.dispatch(["push", str(tmp_path), "someone/cart-pole"])
    monkeypatch.setattr(hub, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SpoError, match="hf://a/b cannot be had from the Hub: "):
        spo.load("hf://a/b")
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(SpoError, match="the Hugging Face Hub needs: pip install"):
        spo.load("hf://a/b")
