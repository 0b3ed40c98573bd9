"""A search for settings with Optuna: trials side by side, a table, Optuna's plots, and the best settings as a file."""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from spo.config.config import Config
from spo.errors import ConfigError, SpoError
from spo.experiments.compare import SETTINGS, check_flags, given_settings
from spo.experiments.executors import Executor
from spo.experiments.executors.local import search_here
from spo.experiments.plan import check_length, check_seeds, path_component
from spo.runs.directory import RunDirectory
from spo.runtime import signals
from spo.runtime.files import replace_file, translate_os_errors, write_json

if TYPE_CHECKING:
    import optuna

    from spo.experiments.tune_worker import Search

INSTALL = "pip install 'simple-policy-optimization[tune]'"
SECONDS_BETWEEN_LOOKS = 0.5
PLOTS = ("plot_optimization_history", "plot_slice")


def tune(
    config: Config,
    words: Sequence[str],
    out: Path | None,
    trials: int,
    seeds: int,
    jobs: int | None,
    executor: str = "local",
    ray_address: str | None = None,
) -> None:
    """Search the settings that the user has not fixed, or go on with a search; leave best.toml and a table."""
    if importlib.util.find_spec("optuna") is None:
        raise SpoError(f"spo tune needs: {INSTALL}")
    from spo.experiments.tune_worker import Search, count_missing, open_study

    check_seeds(seeds)
    check_flags(words)
    check_length(config)
    slots = (os.cpu_count() or 1) if jobs is None else jobs
    for name, value in (("--trials", trials), ("--jobs", slots)):
        if value < 1:
            raise ConfigError(f"{name} {value} is not accepted: it must be a whole number of at least 1")
    out = out or Path("runs") / f"tune-{path_component(config.env)}-{config.objective}"
    search = Search(config.env, fixed_settings(config, words), seeds, trials)
    begin(out, search)
    with RunDirectory(out).acquire_lock(), signals.install_handlers():
        study = open_study(out)
        free_abandoned(study)
        if missing := count_missing(study, trials):
            most = min(slots, missing)
            run_searchers(_executor(executor, out, most, ray_address), most, out, study)
            free_abandoned(study)
    finish(out, search, study)
    if missing := count_missing(study, trials):
        raise SpoError(f"{missing} of {trials} trials were stopped; the same command goes on with them")


def fixed_settings(config: Config, words: Sequence[str]) -> dict[str, object]:
    """What is not searched: whatever the user named, and what a preset does not decide."""
    flags = [word.partition("=")[0].removeprefix("--").replace("-", "_") for word in words if word.startswith("--")]
    named = {name: getattr(config, name) for name in flags if name in SETTINGS}
    common = {name: getattr(config, name) for name in ("preset", "objective", "steps")}
    fixed = given_settings(config) | named | common
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fixed.items()}


def begin(out: Path, search: "Search") -> None:
    """Write what is searched, or check that the directory's search is the same one."""
    from spo.experiments.tune_worker import Search

    file = out / "search.json"
    if os.path.isfile(file):
        try:
            known = Search.read(out)
        except (OSError, TypeError, ValueError) as error:
            raise SpoError(f"{file} is not a search: {error}")
        if replace(known, trials=search.trials) != search:
            raise ConfigError(f"--out {out} holds another search; name another directory")
    elif os.path.isdir(out) and any(out.iterdir()):
        raise ConfigError(f"--out {out} is not empty and holds no search.json; name a new directory")
    with translate_os_errors(f"--out {out}"):
        out.mkdir(parents=True, exist_ok=True)
        write_json(file, search.as_json())


def free_abandoned(study: "optuna.Study") -> None:
    """Let other trials take the place of those that were running when their process was killed."""
    from optuna.trial import TrialState

    from spo.experiments.tune_worker import try_again

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        try_again(study, trial.number)  # first, because whoever is killed between the two is then not forgotten
        study.tell(trial.number, state=TrialState.FAIL)


# Processes


def _executor(name: str, out: Path, slots: int, ray_address: str | None) -> Executor:
    if name == "local":
        return search_here(out, slots)
    from spo.experiments.executors.ray import search_there

    return search_there(out, slots, ray_address)


def run_searchers(executor: Executor, most: int, out: Path, study: "optuna.Study") -> None:
    """Start as many processes as can work at once, and say how far they are until they have ended."""
    numbers, codes, printed = range(min(most, executor.slots)), {}, set()
    try:
        for number in numbers:
            executor.start(number)
        while len(codes := codes | executor.poll()) < len(numbers):
            print_ended(study, printed)
            time.sleep(SECONDS_BETWEEN_LOOKS)
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on in {out}", file=sys.stderr)
        raise
    finally:
        executor.stop()
    print_ended(study, printed)
    if all(codes.values()):
        raise SpoError(f"no process could carry out a trial; {out / 'output.txt'} has what they said")


def print_ended(study: "optuna.Study", printed: set[int]) -> None:
    """A line for each trial that has ended since the last look."""
    from spo.experiments.tune_worker import find_stopped

    trials, stopped = study.get_trials(deepcopy=False), find_stopped(study)
    for trial in trials:
        if trial.state.is_finished() and trial.number not in printed:
            printed.add(trial.number)
            print(f"trial {trial.number}: {describe_trial(trial, stopped)}", file=sys.stderr, flush=True)


# Results


def finish(out: Path, search: "Search", study: "optuna.Study") -> None:
    """Print the table; write the best settings and Optuna's plots."""
    from optuna.trial import TrialState

    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not completed:
        raise SpoError(f"no trial was completed; {out / 'output.txt'} and {out / 'trials'} say why")
    Console().print(trial_table(study))
    best = dict(search.settings) | as_settings(study.best_params)
    with translate_os_errors(str(out)):
        replace_file(out / "best.toml", as_toml(best).encode())
    paths = draw_plots(study, out)
    print("\n".join(map(str, [out / "best.toml", *paths])))
    print(f"spo train {search.env} --config {out / 'best.toml'} trains with the best settings")


def as_settings(params: Mapping[str, object]) -> dict[str, object]:
    """A trial's choices as settings."""
    from spo.experiments.tune_worker import NETWORKS

    return {name: list(NETWORKS[value]) if name == "hidden" else value for name, value in params.items()}


def describe_trial(trial: "optuna.trial.FrozenTrial", stopped: Collection[int]) -> str:
    """What became of a trial, and what it had chosen; the value of a pruned one is no return of its seeds."""
    result = f"return {trial.value:.1f}" if trial.state.name == "COMPLETE" else name_state(trial, stopped)
    return ", ".join([result, *(f"{name} {_short(value)}" for name, value in trial.params.items())])


def name_state(trial: "optuna.trial.FrozenTrial", stopped: Collection[int]) -> str:
    """A trial's state as Optuna has it, or stopped: Optuna knows no difference to those that were refused."""
    return "stopped" if trial.number in stopped else trial.state.name.lower()


def trial_table(study: "optuna.Study", most: int = 10) -> Table:
    """The best trials first."""
    from spo.experiments.tune_worker import find_stopped

    trials, stopped = sorted(study.get_trials(deepcopy=False), key=_order), find_stopped(study)
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    states = [name_state(trial, stopped) for trial in trials]
    title = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    table = Table(title=f"{len(trials)} trials: {title}", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for name in ("trial", "median_return", *names):  # only a long list of layers is broken where the terminal is narrow
        head = name.replace("_", "\n").replace("minib", "mini-\nb")
        table.add_column(head, no_wrap=name != "hidden", min_width=6)
    for trial in trials[:most]:
        result = f"{trial.value:.1f}" if trial.state.name == "COMPLETE" else name_state(trial, stopped)
        table.add_row(str(trial.number), result, *(_short(trial.params.get(name, "")) for name in names))
    return table


def _order(trial: "optuna.trial.FrozenTrial") -> float:
    return -trial.value if trial.state.name == "COMPLETE" else float("inf")


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def as_toml(settings: Mapping[str, object]) -> str:
    """The settings as a file that `spo train --config` takes."""
    lines = [f"{name} = {_toml_value(value)}\n" for name, value in settings.items() if value is not None]
    return "# The best settings that spo tune found.\n" + "".join(lines)


def _toml_value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_value(str(key))} = {_toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    # A basic string of TOML escapes as JSON does.
    return json.dumps(value) if isinstance(value, str) else repr(value)


def draw_plots(study: "optuna.Study", out: Path) -> list[Path]:
    """Optuna's own plots, where matplotlib is there to draw them."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    import warnings

    import optuna.visualization.matplotlib as plots

    from spo.experiments.figures.style import pyplot

    plt, paths = pyplot(), [out / f"{name.removeprefix('plot_')}.png" for name in PLOTS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls its plots experimental
        for name, path in zip(PLOTS, paths):
            getattr(plots, name)(study)
            plt.savefig(path, dpi=120, bbox_inches="tight")
            plt.close("all")
    return paths
