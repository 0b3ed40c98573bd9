"""The same training job on this project and on other libraries, interleaved in one run.

    python benchmarks/peers.py --setup                     # once: virtual environments for libraries not installed here
    python benchmarks/peers.py [--tasks …] [--peers …]     # the comparison
    python benchmarks/peers.py --sweep                     # two single-threaded runs at once, against Stable-Baselines3
    python benchmarks/peers.py --scaling                   # this project over environments, width and threads

The job is PPO-Clip on the CPU: 8 environments × 256 steps, 10 epochs of 4 minibatches of 512 samples, separate tanh
networks for policy and value (64-64, or the policy in seven layers), one Adam, gradients clipped at 0.5, normalised
observations and rewards (Breakout: 8 × 128, 4 epochs of 4 minibatches, the Nature CNN). Each library runs in a
process of its own for every number of threads in --threads; all stay alive, and short rounds go through them in turn.
Warm-up is not counted. Of each the best round counts, with its best number of threads; the median round is told too.
All step Gymnasium environments in their own process, one after the other; this project steps MuJoCo's together, with as
many threads as it has, and with two threads Atari in EnvPool. Where a torch optimiser runs, its gradient steps and the
parameters it changes are counted in the warm-up and written beside the result. What differs by library:

    stable-baselines3   nothing
    sbx                 JAX; an Adam and a gradient norm each for policy and value; does not clip values; no Atari here
    tianshou            scales returns instead of rewards; log-probabilities and values in a second pass; no Atari here
    skrl                scales values instead of rewards; normalises advantages over the batch; no Atari here
    rl_games            as skrl, and does not shuffle samples
    torchrl             centres rewards too; its parts in a loop of ours, as in its own examples; no Atari here
    rllib               rewards as they are; normalises advantages over the batch; clips the value loss, not values;
                        a few per cent more gradient steps; its own Gymnasium version; no Atari here

CleanRL is not among them: it is a collection of scripts, and pip offers only an old one, for the Gym of before.
"""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

from lib.chart import draw_comparison, draw_scaling
from lib.compare import compare, print_table
from lib.launch import Failed
from lib.scaling import scaling
from lib.sweep import sweep
from lib.tasks import DEFAULT_TASKS, TASKS
from lib.venvs import HERE, PEERS, python_of, set_up
from spo.runs.record import machine, versions


def circumstances() -> dict[str, object]:
    """What the numbers were measured on; no date."""
    processor = {name: value for name, value in machine().items() if name != "matrices"}  # which differs by library
    return {"machine": processor | {"cores": os.cpu_count()}, "versions": versions()}


def main() -> None:
    arguments = parsed()
    if arguments.setup:
        for peer in arguments.peers:
            set_up(peer)
    elif arguments.sweep:
        run_sweep(arguments)
    elif arguments.scaling:
        run_scaling(arguments)
    else:
        run_comparison(arguments)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--setup", action="store_true", help="install the libraries that are not installed here")
    mode.add_argument(
        "--sweep", action="store_true", help="two single-threaded runs at once, against Stable-Baselines3"
    )
    mode.add_argument("--scaling", action="store_true", help="this project over environments, width and threads")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, help="default: all but humanoid-7; first for other modes")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--threads", nargs="+", type=positive, default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--rounds", type=positive, default=8)
    parser.add_argument("--steps", type=positive, default=8192, help="environment steps of each library in each round")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    return parser.parse_args()


def positive(text: str) -> int:
    """argparse turns what int() refuses into a sentence; this adds zero and below."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not accepted; accepted are whole numbers from 1 on")
    return int(text)


def chosen(arguments: argparse.Namespace, default: tuple[str, ...]) -> dict:
    names = arguments.tasks or default
    return {name: dataclasses.replace(TASKS[name], steps=arguments.steps) for name in names}


def run_comparison(arguments: argparse.Namespace) -> None:
    for peer in [peer for peer in arguments.peers if python_of(peer) is None]:
        print(f"{peer} is left out: not installed (python benchmarks/peers.py --setup --peers {peer})")
    compared = {}
    for name, job in chosen(arguments, DEFAULT_TASKS).items():
        compared[name] = compare(name, job, arguments.peers, arguments.threads, arguments.rounds)
        print_table(name, compared[name])
        write(arguments, "peers", compared)  # after every task: all of them take an hour or more
        draw_comparison(compared, arguments.out)


def run_sweep(arguments: argparse.Namespace) -> None:
    jobs = chosen(arguments, DEFAULT_TASKS[:1])
    write(arguments, "sweep", {name: sweep(name, job, arguments.rounds) for name, job in jobs.items()})


def run_scaling(arguments: argparse.Namespace) -> None:
    name, job = next(iter(chosen(arguments, DEFAULT_TASKS[:1]).items()))
    if job.is_atari:
        sys.exit(f"error: --scaling --tasks {name} is not accepted: its network has no width; accepted are the others")
    scaled = scaling(job, arguments.rounds)
    write(arguments, "scaling", scaled)
    draw_scaling(scaled, arguments.out)


def write(arguments: argparse.Namespace, name: str, results: dict) -> None:
    """The numbers, and what is needed to measure them again."""
    asked = {"rounds": arguments.rounds, "steps": arguments.steps}
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{name}.json"
    path.write_text(json.dumps(circumstances() | {"asked": asked, "results": results}, indent=2) + "\n")
    print(f"\nwritten: {path}")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"error: {failure}")
