"""What a program does with a run: load its policy, evaluate it."""

import os

from spo.config.env_ids import names_module
from spo.config.validation import check_range, config_from_dict
from spo.envs.factory import env_maker
from spo.envs.make import MakeEnv
from spo.errors import SpoError
from spo.evaluation import Evaluation, OnStep, evaluate_policy
from spo.models.policy import Policy
from spo.models.policy_files import load_policy
from spo.runs.checkpoint import StateDict
from spo.runs.directory import RunDirectory
from spo.runs.record import read_record
from spo.runtime.files import LARGEST_TEXT, read_bounded, write_json, writing


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
    max_steps: int | None = None,
    on_step: OnStep = lambda episode, step: None,
) -> Evaluation:
    """Plays episodes with a run's frozen policy and writes evaluation.json into the run directory."""
    if episodes < 1:
        raise SpoError(f"--episodes {episodes} is not accepted: it must be a whole number of at least 1")
    if max_steps is not None and max_steps < 1:
        raise SpoError(f"--max-steps {max_steps} is not accepted: it must be a whole number of at least 1")
    check_range("seed", seed)
    directory = RunDirectory.open(run)
    settings = _settings(directory)
    if env is None:
        env = _safe_id(settings)
    policy = load_policy(run)
    maker = env_maker(config_from_dict(settings), env)
    result = evaluate_policy(policy, maker, episodes, seed, deterministic, video, max_steps, on_step)
    with writing(str(directory.evaluation)):
        write_json(directory.evaluation, result.as_json())
    return result


def _settings(directory: RunDirectory) -> StateDict:
    try:
        return read_record(read_bounded(directory.config, LARGEST_TEXT))["settings"]
    except (OSError, ValueError, RecursionError) as error:
        raise SpoError(f"{directory.config} is damaged: {error}")


def _safe_id(settings: StateDict) -> str:
    """What names a module would import it: that needs the user's word, not the file's."""
    if names_module([settings["env"], settings["env_arg"]]):
        raise SpoError(f"environment {settings['env']!r} names a module to import; repeat it with --env to allow that")
    return settings["env"]
