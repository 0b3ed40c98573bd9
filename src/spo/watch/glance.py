"""A look at a run that costs a millisecond whatever its length: settings, state, newest row, and a spark line."""

import json
import time
import zlib
from dataclasses import dataclass, field
from urllib.parse import unquote

import numpy as np

from spo.runtime.formatting import clock_or_days
from spo.watch.files import Place, UnreadableFileError, read_file, read_json
from spo.watch.lines import read_last_lines, read_scattered_lines
from spo.watch.tables import parse_row, to_number

FILES = ("config.json", "status.json", "metrics.jsonl", "episodes.jsonl", "summary.json", "metrics.jsonl.gz")
"""A run is looked at again when one of them has changed."""
STATES = ("running", "silent", "finished", "interrupted", "failed", "damaged", "starting")
"""What a run can be; one is silent that says it is running and has not written for a while."""
URGENCY = ("running", "starting", "silent", "failed", "damaged")
"""States of runs that want to be seen first, in this order."""
NOT_COMPARED = ("env", "seed", "out", "config", "quiet", "objective", "profile", "tensorboard", "keep", "threads")
"""Settings that have a place of their own, or no part in what a run comes to."""
SPARK_POINTS, SPARK_WIDTH = 32, 400
SPARK_HEAD, LARGEST_CURVES = 2**15, 2**21
"""Bytes that the returns of packed curves lie within, and that a packed file may have."""
LAST_EPISODES = 100
LONGEST_TEXT, MOST_SETTINGS = 400, 200
PATIENCE = 60.0
"""Seconds without a word, beyond twenty iterations, after which a run that says it is running is called silent."""


@dataclass(frozen=True)
class Glance:
    """What the table of runs shows of one."""

    key: str
    name: str
    task: str = "?"
    objective: str = "?"
    seed: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    state: str = "starting"
    reason: str = ""
    steps: float = 0.0
    total_steps: float = 0.0
    iterations: float = 0.0
    speed: float = np.nan
    seconds_left: float = np.nan
    wall_time: float = np.nan
    last_return: float = np.nan
    deviation: float = np.nan
    deviation_max: float = np.nan
    epsilon: float = np.nan
    adapts_epsilon: bool = False
    spark: tuple[float, ...] = ()
    sweep: str = ""  # the key of the sweep that it belongs to
    variant: str = ""
    is_packed: bool = False
    written: float = 0.0  # when status.json was
    problems: tuple[str, ...] = ()

    @property
    def urgency(self) -> tuple[int, float]:
        """Its place among others: those that want attention first, then the newest."""
        return URGENCY.index(self.state) if self.state in URGENCY else len(URGENCY), -self.written

    @property
    def sweep_folder(self) -> str:
        """The directory of the sweep that it belongs to, below the given one; empty where they are the same."""
        return f"/{self.name}".partition("/runs/")[0][1:]

    @property
    def share(self) -> float:
        """How much of the run is done."""
        return min(1.0, self.steps / self.total_steps) if self.total_steps > 0 else 0.0


def take_signature(place: Place) -> tuple:
    return tuple(place.signature(name) for name in FILES)


def look(key: str, place: Place, sweep: str = "") -> Glance:
    """Look at a run; whatever is wrong with its files is told and nothing else."""
    problems: list[str] = []
    config, status, summary = (_read(place, f"{name}.json", problems) for name in ("config", "status", "summary"))
    row = {} if summary else _last_row(place, problems)
    own = _describe(config) | _progress(config, status, row, summary)
    own |= _outcome(place, row, summary, problems)
    own["state"], own["reason"] = _state(place, config, status, own)
    if own["state"] != "running":
        own["seconds_left"] = np.nan
    variant = unquote(place.parts[-2]) if sweep and len(place.parts) > 1 else ""
    name = "/".join(place.parts) or place.root.name
    own |= {"sweep": sweep, "variant": variant, "is_packed": bool(summary), "problems": tuple(problems)}
    return Glance(key, name, written=_written(place), **own)


def _written(place: Place) -> float:
    signature = place.signature("status.json") or place.signature("config.json")
    return signature[2] / 1e9 if signature else 0.0


def _read(place: Place, name: str, problems: list[str]) -> dict:
    try:
        return read_json(place, name)
    except UnreadableFileError as error:
        problems.append(str(error))
        return {}


def _table(values: dict, name: str) -> dict:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def show(value: object) -> str:
    """Write a setting in few letters."""
    if isinstance(value, list | tuple):
        value = " ".join(str(part) for part in value[:20])
    elif isinstance(value, bool):
        value = "yes" if value else "no"
    elif isinstance(value, float):
        value = f"{value:.6g}"
    return str(value)[:LONGEST_TEXT]


def _describe(config: dict) -> dict[str, object]:
    settings, own = _table(config, "settings"), _table(_table(config, "resolved"), "objective_settings")
    shown = dict(list(settings.items())[:MOST_SETTINGS]) | dict(list(own.items())[:MOST_SETTINGS])
    return {
        "task": show(settings.get("env", "?")),
        "objective": show(settings.get("objective", "?")),
        "seed": show(settings.get("seed", "")),
        "settings": {name[:80]: show(value) for name, value in shown.items() if _is_shown(name, value)},
        "epsilon": to_number(own.get("epsilon")),
        "adapts_epsilon": "epsilon_gain" in own or settings.get("epsilon_schedule") == "linear",
    }


def _is_shown(name: str, value: object) -> bool:
    return name not in NOT_COMPARED and value is not None and value != {} and value != []


def _progress(config: dict, status: dict, row: dict, summary: dict) -> dict[str, float]:
    total = to_number(_table(config, "resolved").get("total_steps"))
    newest = summary or row
    steps = to_number(newest.get("env_steps", status.get("env_steps", 0)))
    wall_time = to_number(newest.get("wall_time"))
    speed = steps / wall_time if wall_time > 0 else np.nan
    left = (total - steps) / speed if speed > 0 and total > steps else np.nan
    iterations = to_number(newest.get("iterations", newest.get("iteration", status.get("iteration", 0))))
    counts = {"total_steps": total, "steps": steps, "iterations": iterations}
    known = {name: value if value == value else 0.0 for name, value in counts.items()}
    return known | {"wall_time": wall_time, "speed": speed, "seconds_left": left}


def _last_row(place: Place, problems: list[str]) -> dict:
    try:
        lines = read_last_lines(place, "metrics.jsonl", 2**14)
    except UnreadableFileError as error:
        problems.append(str(error))
        return {}
    row = parse_row(lines[-1]) if lines else {}
    if row is None:
        problems.append("the last line of metrics.jsonl is no row")
    return row or {}


def _outcome(place: Place, row: dict, summary: dict, problems: list[str]) -> dict[str, object]:
    if summary:
        return _packed_outcome(summary) | {"spark": _packed_spark(place)}
    try:
        returns = _returns(read_last_lines(place, "episodes.jsonl", 2**14))
        windows = read_scattered_lines(place, "episodes.jsonl", SPARK_POINTS, SPARK_WIDTH)
    except UnreadableFileError as error:
        problems.append(str(error))
        returns, windows = [], []
    means = [float(np.mean(own)) for window in windows if (own := _returns(window))]
    last = returns[-LAST_EPISODES:]
    return {
        "last_return": float(np.mean(last)) if last else np.nan,
        "spark": tuple(means),
        "deviation": to_number(row.get("ratio_deviation")),
        "deviation_max": to_number(row.get("ratio_deviation_run_max")),
    }


def _packed_outcome(summary: dict) -> dict[str, object]:
    metrics, returns = _table(summary, "metrics"), summary.get("returns")
    first = returns[0] if isinstance(returns, list) and returns and isinstance(returns[0], dict) else {}
    return {
        "last_return": to_number(first.get("mean")),
        "deviation": to_number(_table(metrics, "ratio_deviation").get("mean")),
        "deviation_max": to_number(_table(metrics, "ratio_deviation_max").get("max")),
    }


def _packed_spark(place: Place) -> tuple[float, ...]:
    """Read the mean returns at the head of packed curves, and leave the metrics that follow them."""
    try:
        packed = read_file(place, "curves.json.gz", LARGEST_CURVES) or b""
        head = zlib.decompressobj(wbits=31).decompress(packed, SPARK_HEAD)
        values = json.loads(head.partition(b'"mean":')[2].partition(b"]")[0] + b"]")
    except (UnreadableFileError, zlib.error, ValueError, RecursionError):
        return ()
    known = [value for value in map(to_number, values) if value == value]
    return tuple(known[:: max(1, len(known) // SPARK_POINTS)])


def _returns(lines: list[bytes]) -> list[float]:
    values = [to_number(row.get("return")) for line in lines if (row := parse_row(line)) is not None]
    return [value for value in values if np.isfinite(value)]


def _state(place: Place, config: dict, status: dict, own: dict) -> tuple[str, str]:
    """Say how the run stands, and why it is not finished where that is known."""
    if not config:
        return "damaged", ""
    state, reason = status.get("state", "starting"), status.get("reason")
    if state not in STATES:
        return "damaged", f"status.json says {show(state)}"
    age = time.time() - _written(place)
    usual = 20 * own["wall_time"] / own["iterations"] if own["iterations"] > 0 and own["wall_time"] > 0 else 0.0
    if state == "running" and age > PATIENCE + usual:
        return "silent", f"nothing was written for {clock_or_days(age)}"
    return state, show(reason) if reason else ""
