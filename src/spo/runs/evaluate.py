"""What a program does with a run: load its policy, evaluate it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from spo.config.env_ids import names_module
from spo.config.sources import to_plain
from spo.config.validation import check_range, config_from_dict
from spo.envs.factory import env_maker
from spo.envs.make import MakeEnv
from spo.errors import ConfigError, CorruptRunError, SpoError
from spo.evaluation import Evaluation, OnStep, evaluate_policy
from spo.models.policy import Policy
from spo.models.policy_files import list_best, load_best_policy, load_newest_policy
from spo.runs.directory import RunDirectory, path_of
from spo.runs.hub import is_address, load_from_hub
from spo.runs.record import RunRecord, check_wrappers_repeated
from spo.runtime.files import translate_os_errors, write_json


def load(run: str | os.PathLike[str], encoder: str | None = None, best: bool = False) -> Policy:
    """The policy of a run directory: the final one, or until there is one that of the newest checkpoint, which is told;
    the one with the best evaluation, if the run kept it; or that of hf://user/name on the Hugging Face Hub.

    Runs no code and imports nothing that a file names: an encoder that is a module of yours must be named again.
    """
    run = path_of(run)
    if is_address(run):
        if best:
            raise ConfigError(f"--best is not accepted: {run} is on the Hub, where a run has one policy")
        return load_from_hub(run, encoder)
    if best:
        return load_best_policy(run, encoder)[0]
    policy, folder = load_newest_policy(run, encoder)
    if folder.parent.parent.name == "checkpoints" and folder.parent.name.isdecimal():
        print(f"{run} has not finished: this is its policy after iteration {int(folder.parent.name)}", file=sys.stderr)
    return policy


def evaluate(
    run: str | os.PathLike[str],
    env: str | MakeEnv | None = None,
    *,
    episodes: int = 10,
    seed: int = 0,
    deterministic: bool = True,
    video: str | None = None,
    max_steps: int | None = None,
    encoder: str | None = None,
    wrapper: Sequence[str] = (),
    best: bool = False,
    render: bool = False,
    on_step: OnStep = lambda episode, step: None,
) -> Evaluation:
    """Play episodes with a run's frozen policy and write evaluation.json beside it: into the run directory, or with
    `best` into the folder of its best policy; a place that cannot be written to is a warning. With `render` a window
    shows them.
    """
    if episodes < 1:
        raise ConfigError(f"--episodes {episodes} is not accepted: it must be a whole number of at least 1")
    if max_steps is not None and max_steps < 1:
        raise ConfigError(f"--max-steps {max_steps} is not accepted: it must be a whole number of at least 1")
    seed = to_plain(seed)
    check_range("seed", seed)
    directory = RunDirectory.open(run)
    record = _read_record(directory)
    settings = record.settings
    if env is None:
        env = _safe_id(record)
    check_wrappers_repeated(settings, wrapper)
    policy = load(run, encoder, best)
    file = list_best(run)[0] / directory.evaluation.name if best else directory.evaluation
    maker = env_maker(config_from_dict(settings), env)
    result = evaluate_policy(policy, maker, episodes, seed, deterministic, video, max_steps, on_step, render)
    _keep(result, file)
    return result


def _keep(result: Evaluation, file: Path) -> None:
    """Write what was played, or tell why that cannot be: the result is worth more than its file."""
    try:
        with translate_os_errors(str(file)):
            write_json(file, result.as_json())
    except SpoError as refusal:
        start = "\r\x1b[K" if sys.stderr.isatty() else ""  # over the line that tells the progress
        print(f"{start}warning: {refusal}; the result is not kept", file=sys.stderr, flush=True)


def _read_record(directory: RunDirectory) -> RunRecord:
    try:
        return RunRecord.read(directory)
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptRunError(f"{directory.config} is damaged: {error}")


def _safe_id(record: RunRecord) -> str:
    """What names a module would import it: that needs the user's word, not the file's."""
    env, env_arg = record.settings["env"], record.settings["env_arg"]
    if record.resolved.env_from == "callable":
        raise ConfigError(
            f"this run's environment was made by {env}: name it, as in --env {':'.join(env.rsplit('.', 1))}"
        )
    if names_module([env, env_arg]):
        raise ConfigError(f"this run names a module of yours: repeat --env {env} to import it")
    return env
