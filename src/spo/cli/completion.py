"""`spo completion`: a script that completes commands, flags and their values in bash, zsh or fish.

The script holds everything as it is now, so that pressing a key starts no Python.
"""

import importlib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Literal

import tyro

from spo.cli.command import COMMANDS, command
from spo.cli.experiments import CompareArguments, TuneArguments


@dataclass(frozen=True)
class CompletionArguments:
    """Prints a script that completes commands, flags, objectives, suites, presets and environments in a shell.

    bash: spo completion bash >> ~/.bashrc; zsh: spo completion zsh >> ~/.zshrc; fish: spo completion fish >
    ~/.config/fish/completions/spo.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Which shell."""


@command("completion SHELL", "print a script that completes spo in bash, zsh or fish", CompletionArguments)
def completion(given: CompletionArguments) -> None:
    write = {"bash": write_bash, "zsh": write_zsh, "fish": write_fish}[given.shell]
    print(write({name: list_options(name) for name in COMMANDS}))


@dataclass(frozen=True)
class Options:
    """What may follow a command: words in their place, and flags with their known values; a switch takes none."""

    words: tuple[str, ...]
    flags: Mapping[str, tuple[str, ...]]
    switches: tuple[str, ...]
    lists: tuple[str, ...]
    """Those of the flags that take several values."""


def list_options(name: str) -> Options:
    """List what a command accepts, from the types of its arguments."""
    hints: dict[str, object] = {}
    for kind in _list_kinds(name):
        hints |= typing.get_type_hints(kind, include_extras=True)
    values = {field: _list_values(name, field, hint) for field, hint in hints.items()}
    own = [field for field, hint in hints.items() if tyro.conf.Positional in getattr(hint, "__metadata__", ())]
    switches = [field for field, hint in hints.items() if hint is bool]
    flags = {_flag(field): values[field] for field in hints if field not in (*own, *switches)}
    lists = [field for field, hint in hints.items() if typing.get_origin(_strip(hint)) in (tuple, dict)]
    words = tuple(word for field in own for word in values[field])
    return Options(
        words, flags, tuple(map(_flag, switches)), tuple(flag for flag in map(_flag, lists) if flag in flags)
    )


def _strip(hint: object) -> object:
    """Strip a type of what is said of it."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def _list_kinds(name: str) -> tuple[type, ...]:
    """List the classes of a command's arguments, of those too that parse them by themselves."""
    from spo.cli.settings import GivenSettings
    from spo.experiments.figures import FigureArguments

    own = {
        "train": (GivenSettings,),
        "compare": (GivenSettings, CompareArguments),
        "tune": (GivenSettings, TuneArguments),
        "figures": (FigureArguments,),
    }
    known = COMMANDS[name].arguments
    return own.get(name, (known,) if known else ())


def _list_values(name: str, field: str, hint: object) -> tuple[str, ...]:
    """List the values of a field: its choices, or those that are known by its name."""
    plain = _strip(hint)
    plain = typing.get_args(plain)[0] if typing.get_origin(plain) is tuple else plain
    if typing.get_origin(plain) is Literal:
        return typing.get_args(plain)
    place = "spo.experiments.figures:FIGURES" if (name, field) == ("figures", "name") else VALUES.get(field)
    if place is None:
        return ()
    module, _, attribute = place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    return tuple(found() if callable(found) else found)


def _environments() -> Iterable[str]:
    """List Gymnasium's ids, the games of Atari by their names, and what EnvPool has besides, where it is installed."""
    import gymnasium

    registered = {env_id for env_id in gymnasium.registry if not env_id.startswith(("GymV", "phys2d/", "tabular/"))}
    return sorted(registered | set(_pool_environments()))


def _pool_environments() -> Iterable[str]:
    from spo.config.env_ids import module_in_envpool

    if find_spec("envpool") is None:
        return
    import envpool

    for env_id in envpool.list_all_envs():
        module = module_in_envpool(env_id)
        if module:
            yield env_id.rpartition("-v")[0] if module == "envpool.atari" else env_id


VALUES = {
    "env": "spo.cli.completion:_environments",
    "objective": "spo.objectives:OBJECTIVES",
    "objectives": "spo.objectives:OBJECTIVES",
    "encoder": "spo.models.image_encoders:ENCODER_NAMES",
    "preset": "spo.config.sources:preset_names",
    "suite": "spo.experiments.plan:suite_names",
}
"""By field, what has its values, or lists them when it is called."""


def write_bash(commands: Mapping[str, Options]) -> str:
    """Write the script for bash; where nothing is known, files are completed."""
    return _write_cases(
        commands,
        start='_spo() {\n  local at accepted command="${COMP_WORDS[1]}" word="${COMP_WORDS[COMP_CWORD]}"\n'
        '  local previous="${COMP_WORDS[COMP_CWORD - 1]}"\n  if [ "$COMP_CWORD" -eq 1 ]; then\n    command=""\n  fi\n'
        "  at=$((COMP_CWORD - 1))\n"
        '  while [[ $at -gt 2 && "${COMP_WORDS[at]}" != --* ]]; do at=$((at - 1)); done\n'
        '  local flag="${COMP_WORDS[at]}"',
        end='  COMPREPLY=($(compgen -W "$accepted" -- "$word"))\n}\ncomplete -o default -F _spo spo',
    )


def write_zsh(commands: Mapping[str, Options]) -> str:
    """Write the script for zsh; where nothing is known, files are completed."""
    return _write_cases(
        commands,
        start="autoload -Uz compinit && compinit\n_spo() {\n"
        "  local at accepted command=$words[2] word=$words[CURRENT]\n"
        '  local previous=$words[CURRENT-1]\n  if (( CURRENT == 2 )); then\n    command=""\n  fi\n'
        '  at=$((CURRENT - 1))\n  while [[ $at -gt 3 && "$words[at]" != --* ]]; do at=$((at - 1)); done\n'
        "  local flag=$words[at]",
        end="  compadd -- ${=accepted} || _files\n}\ncompdef _spo spo",
    )


def _write_cases(commands: Mapping[str, Options], start: str, end: str) -> str:
    """Write what bash and zsh share: the words that may come, by the command and by the flag before."""
    lists = [f'"{name} {flag}"' for name, options in commands.items() for flag in options.lists]
    lines = [f'    " "*) accepted="{" ".join(commands)} --version --help" ;;']
    for name, options in commands.items():
        for flag, values in options.flags.items():
            lines.append(f'    "{name} {flag}") accepted="{" ".join(values)}" ;;')
        words = [*options.words, *options.flags, *options.switches, "--help"]
        lines.append(f'    "{name} "*) accepted="{" ".join(words)}" ;;')
    several = ['  case "$command $flag" in', f"    {'|'.join(lists)}) previous=$flag ;;", "  esac"]
    dashed = '  case "$word" in -*) previous="" ;; esac'
    return "\n".join([start, *several, dashed, '  case "$command $previous" in', *lines, "  esac", end])


def write_fish(commands: Mapping[str, Options]) -> str:
    """Write the script for fish, which shows a sentence of help beside each command."""
    lines = [FISH_FUNCTION]
    for name, options in commands.items():
        lines.append(f"complete -c spo -n __fish_use_subcommand -x -a {name} -d {_quote(COMMANDS[name].help)}")
        after = f"complete -c spo -n '__fish_seen_subcommand_from {name}'"
        if options.words:
            lines.append(f"{after} -a {_quote(' '.join(options.words))}")
        for flag, values in options.flags.items():
            lines.append(f"{after} -l {flag[2:]} " + (f"-x -a {_quote(' '.join(values))}" if values else "-r"))
            if flag in options.lists and values:
                lines.append(f"complete -c spo -n '__spo_after {name} {flag}' -f -a {_quote(' '.join(values))}")
        lines += [f"{after} -l {switch[2:]}" for switch in options.switches]
    return "\n".join(lines)


FISH_FUNCTION = """function __spo_after
    set -l words (commandline -opc)
    test "$words[2]" = $argv[1]; or return 1
    set -l flags (string match -- '--*' $words)
    test "$flags[-1]" = $argv[2]
end"""
"""Tells whether the words of a flag that takes several are being typed."""


def _quote(text: str) -> str:
    """Quote for fish, which escapes inside of single quotes with a backslash."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
