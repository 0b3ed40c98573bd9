"""One process of a search for settings: python -m spo.experiments.tune_worker DIR NUMBER DRIVER."""

from spo.runtime import library_env

library_env.set_library_env()

import signal
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import optuna

from spo.config.config import Config
from spo.config.sources import make_config
from spo.envs.factory import env_maker
from spo.envs.subproc import set_parent_death_signal
from spo.errors import SpoError
from spo.runs.directory import RunDirectory
from spo.runs.start import run_training
from spo.runtime.files import read_json

LOOKS = 10
"""How often in a run its return is looked at to decide whether the trial goes on."""
RECENT = 100
"""Episodes whose mean return decides that."""
NETWORKS = {"64 64": (64, 64), "256 256": (256, 256), "256 256 128 128 64 64": (256, 256, 128, 128, 64, 64)}
STATE = optuna.trial.TrialState
STARTED = (STATE.COMPLETE, STATE.PRUNED, STATE.FAIL, STATE.RUNNING)
RETRIES = "retries"
"""Of a trial that tries the settings of a stopped one again: that one's number."""

Suggest = Callable[[optuna.Trial], object]


@dataclass(frozen=True)
class Search:
    """What is searched: the settings of all trials, how many seeds each has, and how many trials there are."""

    env: str
    settings: Mapping[str, object]  # what the user fixed; the preset and the objective among them
    seeds: int
    trials: int

    @classmethod
    def read(cls, directory: Path) -> "Search":
        return cls(**read_json(directory / "search.json"))

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def config(self, **settings: object) -> Config:
        """The settings of a run: single-threaded and quiet, because one runs per core."""
        return make_config(self.env, **{"threads": 1, "quiet": True} | dict(self.settings) | settings)


def open_study(directory: Path, seed: int = 0) -> optuna.Study:
    """The study of a directory, whose journal survives whatever ends a process."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    backend = optuna.storages.journal.JournalFileBackend(str(directory / "journal.log"))
    return optuna.create_study(
        study_name="spo",
        storage=optuna.storages.JournalStorage(backend),
        direction="maximize",
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=2),
    )


def count_missing(study: optuna.Study, trials: int) -> int:
    """How many trials have still to be started: those of other processes count as well, and stopped ones do not."""
    stopped = find_stopped(study)
    started = [trial for trial in study.get_trials(deepcopy=False, states=STARTED) if trial.number not in stopped]
    return max(0, trials - len(started))


def find_stopped(study: optuna.Study) -> set[int]:
    """The numbers of the trials that ended with their process, each of which another trial stands for."""
    return {trial.user_attrs[RETRIES] for trial in study.get_trials(deepcopy=False) if RETRIES in trial.user_attrs}


def try_again(study: optuna.Study, number: int) -> None:
    """Have the settings of a trial that ended with its process tried by another one, once."""
    if number in find_stopped(study):
        return
    stopped = study.get_trials(deepcopy=False)[number]
    # What it was to try itself is lost to its params where it ended before it had chosen.
    chosen = stopped.system_attrs.get("fixed_params", {}) | stopped.params
    study.enqueue_trial(chosen, user_attrs={RETRIES: number})


# What is searched


def search_space(config: Config) -> dict[str, Suggest]:
    """By setting, how a trial chooses it; around the preset's values where these depend on the task."""
    horizons = [max(8, int(config.horizon * factor)) for factor in (0.5, 1, 2)]
    counts = sorted({max(1, int(config.minibatches * factor)) for factor in (0.5, 1, 2, 4)})
    fitting = [count for count in counts if all(horizon * config.envs % count == 0 for horizon in horizons)]
    space: dict[str, Suggest] = {
        "learning_rate": lambda trial: trial.suggest_float("learning_rate", 3e-5, 3e-3, log=True),
        "epochs": lambda trial: trial.suggest_int("epochs", 2, 20, log=True),
        "minibatches": lambda trial: trial.suggest_categorical("minibatches", fitting or [config.minibatches]),
        "horizon": lambda trial: trial.suggest_categorical("horizon", horizons),
        "entropy_coef": lambda trial: trial.suggest_float("entropy_coef", 0.0, 0.02),
    }
    own = config.objective_settings
    if "deviation_target" in own:
        space["deviation_target"] = lambda trial: trial.suggest_float("deviation_target", 0.02, 0.3, log=True)
    elif "epsilon" in own:
        space["epsilon"] = lambda trial: trial.suggest_float("epsilon", 0.05, 0.5, log=True)
    if not config.preset.startswith("atari"):
        space["hidden"] = lambda trial: NETWORKS[trial.suggest_categorical("hidden", list(NETWORKS))]
    return space


def suggest(trial: optuna.Trial, search: Search) -> dict[str, object]:
    """The trial's choice of all that the user has not fixed."""
    space = search_space(search.config())
    return {name: choose(trial) for name, choose in space.items() if name not in search.settings}


# Trials


def carry_out(trial: optuna.Trial, search: Search, directory: Path) -> float:
    """Run a trial; Optuna counts one that a signal ends as failed, so another one takes its place."""
    try:
        return run_trial(trial, search, directory)
    except KeyboardInterrupt:
        try_again(trial.study, trial.number)
        raise


def run_trial(trial: optuna.Trial, search: Search, directory: Path) -> float:
    """The median return over the seeds; a trial whose first seed falls behind is pruned."""
    settings = suggest(trial, search)
    returns = []
    for seed in range(1, search.seeds + 1):
        out = directory / "trials" / str(trial.number) / str(seed)
        config = search.config(**settings, seed=seed, out=str(out))
        watch = _watch(trial, RunDirectory(out), config) if seed == 1 else None
        summary = run_training(config, env_maker(config), watch).summary
        if watch and trial.should_prune():
            raise optuna.TrialPruned
        returns.append(summary["return"])
    ended = [value for value in returns if value is not None]
    if not ended:
        raise SpoError(f"trial {trial.number}: no episode ended in {config.steps:,} steps")
    return statistics.median(ended)


def _watch(trial: optuna.Trial, run: RunDirectory, config: Config) -> Callable[..., bool]:
    """A callback that reports the newest returns now and then, and ends a run that falls behind."""
    every = max(1, config.iterations // LOOKS)

    def look(trainer, row) -> bool:
        if row["iteration"] % every or not (episodes := run.read_episodes()):
            return True
        trial.report(statistics.fmean(episode["return"] for episode in episodes[-RECENT:]), row["iteration"] // every)
        return not trial.should_prune()

    return look


def main() -> None:
    """Carry out trials until there are enough of them."""
    directory, number, driver = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    set_parent_death_signal(driver, signal.SIGTERM)
    search = Search.read(directory)
    study = open_study(directory, seed=number)
    try:
        while count_missing(study, search.trials):
            study.optimize(lambda trial: carry_out(trial, search, directory), n_trials=1, catch=(SpoError,))
    except KeyboardInterrupt as interrupt:
        sys.exit(getattr(interrupt, "code", 130))


if __name__ == "__main__":
    main()
