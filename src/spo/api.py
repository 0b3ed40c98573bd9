"""What a program does with a finished run: load its policy, evaluate it."""

import os

from spo.envs.making import EnvMaker, MakeEnv
from spo.errors import Refusal
from spo.evaluation import Evaluation, evaluate_policy
from spo.policy import Policy, load_policy
from spo.rundir import RunDirectory, write_json


def load(run: str | os.PathLike) -> Policy:
    """The policy of a run directory. Runs no code and imports nothing that a file names."""
    return load_policy(run)


def evaluate(
    run: str | os.PathLike,
    env: str | MakeEnv | None = None,
    *,
    episodes: int = 10,
    seed: int = 0,
    deterministic: bool = True,
    video: str | None = None,
) -> Evaluation:
    """Plays episodes with a run's frozen policy and writes evaluation.json into the run directory."""
    if episodes < 1:
        raise Refusal(f"--episodes {episodes} is not accepted: it must be a whole number of at least 1")
    directory = RunDirectory.open(run)
    settings = directory.read_config()["settings"]
    policy = load_policy(run)
    make_env = EnvMaker(env or _safe_id(settings["env"]), settings["env_arg"])
    result = evaluate_policy(policy, make_env, episodes, seed, deterministic, video)
    write_json(directory.evaluation, result.as_json())
    return result


def _safe_id(env_id: str) -> str:
    """An id that names a module would import it: that needs the user's word, not the file's."""
    if ":" in env_id:
        raise Refusal(f"environment {env_id!r} names a module to import; repeat it with --env to allow that")
    return env_id
