"""The commands of a page, made small enough to be carried out one after the other in an empty directory."""

import json
import re
from pathlib import Path

from spo import cli
from spo.cli.training import parse_train
from spo.experiments.plan import read_suite

LEFT_OUT = {
    "spo push": "it asks the Hub; tests/runs/test_hub.py pushes to a stand-in",
    "spo watch": "it goes on until it is stopped; tests/watch opens its pages",
    "--ray-address": "it needs the cluster that it names; tests/experiments starts one",
    "pip ": "it installs into the environment that runs the tests",
    "make ": "it is how the tests are called, or takes minutes by itself",
    "uv ": "it needs the simulator",
    "./isaaclab.sh": "it needs the simulator",
    "python -m spo.integrations.zoo": "it needs the host; tests/integrations runs it where it is installed",
    "python -m verl": "it needs the host and a GPU; tests/integrations calls its loss where it is installed",
    "python benchmarks/": "it takes minutes to hours; tests/test_benchmarks.py starts each script for its help",
}
"""What stands in a line that is not carried out, and why not."""
QUICK = ("train", "resume", "eval", "doctor", "objectives", "export", "completion")
"""Commands that this process carries out in seconds once they are reduced."""
SMALL = {"--seeds": "1", "--steps": "1024", "--envs": "2", "--horizon": "64", "--minibatches": "1", "--epochs": "1"}


def reason_for(line: str) -> str | None:
    """Why a line is not carried out, if it is not."""
    return next((why for part, why in LEFT_OUT.items() if line.startswith(part) or f" {part} " in line), None)


def is_quick(words: list[str]) -> bool:
    return (words[0] in QUICK and "Breakout" not in words) or "--dry-run" in words


def carry_out(words: list[str]) -> None:
    """Carry out a command, reduced; what it names of earlier commands is found, or made first."""
    name, rest = words[0], [find_run(word) for word in words[1:]]
    cli.dispatch([name, *REDUCTIONS.get(name, list)(rest)])


def put(words: list[str], **flags: object) -> list[str]:
    """The words with these flags, in place of whatever values they had."""
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if flag in words:
            start = words.index(flag)
            rest = iter(range(start + 1, len(words)))
            end = next((at for at in rest if words[at].startswith("--")), len(words))
            words = words[:start] + words[end:]
        words = [*words, flag, *(value if isinstance(value, list) else [str(value)])]
    return words


def find_run(word: str) -> str:
    """A run whose name a page writes as runs/ENV-…: the newest that is there, or one that is made now."""
    if "…" not in word:
        return word
    start = word.partition("…")[0]
    found = sorted(path for path in Path(".").glob(f"{start}*") if (path / "config.json").exists())
    if found:
        return str(found[-1])
    carry_out(["train", re.sub("-spo-s1-$", "", Path(start).name) if start != "runs/" else "CartPole-v1"])
    return find_run(word)


def reduce_train(words: list[str]) -> list[str]:
    """One iteration of one epoch, eager."""
    steps = parse_train(words).batch_size
    return [*put(words, steps=steps, epochs=1, compile="off"), "--quiet"]


def reduce_resume(words: list[str]) -> list[str]:
    """A new length is one iteration more."""
    if "--steps" not in words:
        return words
    steps = json.loads(Path(words[0], "config.json").read_text())["resolved"]["total_steps"]
    return put(words, steps=2 * steps)


def reduce_bench(words: list[str]) -> list[str]:
    """A task and two variants of a suite, each for one iteration."""
    if "--dry-run" in words:
        return words
    plan = read_suite(words[0])
    words = [word for word in put(words, scale="1") if word not in ("--scale", "1")]
    return put(words, steps=2048, seeds=1, tasks=[plan.tasks[0]], variants=list(plan.variants)[:2])


REDUCTIONS = {
    "train": reduce_train,
    "resume": reduce_resume,
    "bench": reduce_bench,
    "eval": lambda words: put(words, episodes=1, max_steps=20),
    "compare": lambda words: put(words, **{flag[2:]: value for flag, value in SMALL.items()}),
    "tune": lambda words: put(words, trials=1, seeds=1, jobs=1, steps=4096, epochs=1, hidden=8),
    "theory": lambda words: put(words, mdps=5),
}
