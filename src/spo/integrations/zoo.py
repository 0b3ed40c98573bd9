"""rl-zoo3 with the algorithms `spo` and `spo_lstm`, tuned and configured as its `ppo` and `ppo_lstm`.

    python -m spo.integrations.zoo train --algo spo --env CartPole-v1
    python -m spo.integrations.zoo enjoy --algo spo --env CartPole-v1 -f logs

Everything after the module's name is the zoo's own command line. Settings are those of the zoo's `ppo.yml` unless
`--conf-file` names others.
"""

import importlib
import sys
from pathlib import Path

from spo.errors import SpoError
from spo.integrations.hosts import HOSTS

with HOSTS["zoo"].importing():
    import rl_zoo3
    from rl_zoo3 import ALGOS, hyperparams_opt

from spo.integrations.sb3 import SPO
from spo.integrations.sb3_contrib import RecurrentSPO

ALIKE = {"spo": "ppo", "spo_lstm": "ppo_lstm"}
"""Whose settings and search space an algorithm takes."""


def register() -> None:
    """Makes the algorithms known to the zoo, its search for hyperparameters included."""
    ALGOS.update({"spo": SPO, "spo_lstm": RecurrentSPO})
    for table in (hyperparams_opt.HYPERPARAMS_SAMPLER, hyperparams_opt.HYPERPARAMS_CONVERTER):
        table.update({ours: table[theirs] for ours, theirs in ALIKE.items() if theirs in table})


def with_settings(arguments: list[str]) -> list[str]:
    """The arguments of `train`, with the file of PPO's settings if they name none."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    algorithm = words[words.index("--algo") + 1] if "--algo" in words[:-1] else None
    if arguments[:1] != ["train"] or algorithm not in ALIKE or {"--conf-file", "-conf"} & set(words):
        return arguments
    return [*arguments, "--conf-file", str(Path(rl_zoo3.__file__).parent / "hyperparams" / f"{ALIKE[algorithm]}.yml")]


def main() -> None:
    """The zoo's command line, on which what is refused is a sentence."""
    sys.argv[1:] = with_settings(sys.argv[1:])
    try:
        run()
    except SpoError as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        sys.exit(2)


def run() -> None:
    """The command that the arguments name; `train` and `enjoy` without what the zoo's plots import."""
    if sys.argv[1:2] in (["train"], ["enjoy"]):
        script = sys.argv.pop(1)
        getattr(importlib.import_module(f"rl_zoo3.{script}"), script)()
    else:
        importlib.import_module("rl_zoo3.cli").main()


register()

if __name__ == "__main__":
    main()
