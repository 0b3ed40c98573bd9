"""Makes single Gymnasium environments, and turns what can go wrong there into one sentence."""

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from spo.config.env_ids import is_atari
from spo.envs.atari import make_atari
from spo.envs.envpool import PoolEnv, has_only_envpool
from spo.errors import EnvError, SpoError

MakeEnv = Callable[..., gym.Env]
"""Makes one environment; may take a `render_mode`, and for Atari `full_games`."""


@dataclass(frozen=True)
class EnvMaker:
    """Makes one environment, from a Gymnasium id (also `module:Id-v0`), an Atari game's name, or a callable."""

    env: str | MakeEnv
    env_arg: Mapping[str, object]
    atari_wrappers: str = "standard"
    on_error: str = "stop"  # or "restart": what to do with one that raises in a step
    wrappers: tuple[str, ...] = ()  # module:Class, each followed by its arguments as key=value

    def __call__(self, full_games: bool = False, **keywords: Any) -> gym.Env:
        """One environment, or a refusal."""
        return check_env(self.make_wrapped(full_games, **keywords))

    def make_wrapped(self, full_games: bool = False, **keywords: Any) -> object:
        """What the id or the callable makes, in its wrappers."""
        made = self._bare(full_games, **keywords)
        for name, arguments in read_wrappers(self.wrappers):
            made = wrap(check_env(made), name, arguments)
        return made

    def _bare(self, full_games: bool, **keywords: Any) -> object:
        keywords, env = {**self.env_arg, **keywords}, self.env
        if callable(env):
            return _name_failure(lambda: env(**keywords), getattr(env, "__name__", repr(env)))
        if is_atari(env):
            return _name_failure(lambda: make_atari(env, full_games, wrappers=self.atari_wrappers, **keywords), env)
        if ":" in env and (kind := find_class(env)):
            return _name_failure(lambda: kind(**keywords), env)
        if has_only_envpool(env):
            return _name_failure(lambda: PoolEnv(env, **keywords), env)
        with _quiet(env):
            return _name_failure(lambda: gym.make(env, disable_env_checker=True, **keywords), env)


def check_maker(env: object) -> None:
    """Refuse what is neither an id nor makes an environment, above all an environment itself."""
    if isinstance(env, gym.vector.VectorEnv):
        instead = f"pass what makes one, such as lambda: envs, with envs={env.num_envs}"
        raise EnvError(f"a vector environment that exists already is not accepted: {instead}")
    if isinstance(env, gym.Env):
        instead = "a run makes several: pass its class, its id, or a function that makes one"
        raise EnvError(f"an environment that exists already ({type(env).__name__}) is not accepted: {instead}")
    if not isinstance(env, str) and not callable(env):
        raise EnvError(f"environment {env!r} is not accepted: it must be an id, or a class or function that makes one")


def find_class(env_id: str) -> MakeEnv | None:
    """Import the module that an id names, and return the environment's class of that name, if the id is no other."""
    module, _, name = env_id.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception:
        return None  # Gymnasium imports it again, and what it raises is put into words there
    is_env = isinstance(found, type) and issubclass(found, gym.Env)
    return found if is_env and name not in gym.registry else None


def read_wrappers(words: Sequence[str]) -> list[tuple[str, dict[str, object]]]:
    """Return each wrapper that `module:Class key=value ...` names, with its arguments."""
    if not words:
        return []
    from spo.config.fields import names_wrapper, parse_key_values  # slow to import, for workers that need none

    wrappers: list[tuple[str, dict[str, object]]] = []
    for word in words:
        if names_wrapper(word):
            wrappers.append((word, {}))
        else:
            wrappers[-1][1].update(parse_key_values([word]))
    return wrappers


def wrap(env: gym.Env, name: str, arguments: Mapping[str, object]) -> gym.Env:
    """Put a wrapper around an environment, or refuse what is none."""
    module, _, attribute = name.partition(":")
    try:
        wrapped = getattr(importlib.import_module(module), attribute)(env, **arguments)
    except Exception as error:  # whatever a user's module raises
        raise EnvError(f"--wrapper {name} failed: {type(error).__name__}: {_sentence(error)}") from error
    if not isinstance(wrapped, gym.Env):
        raise EnvError(f"--wrapper {name} made a {type(wrapped).__name__}; accepted is what makes a gymnasium.Env")
    return wrapped


def check_env(made: object) -> gym.Env:
    if not isinstance(made, gym.Env):
        raise EnvError(f"what should make an environment made a {type(made).__name__}; accepted is a gymnasium.Env")
    for name in ("observation_space", "action_space"):
        if not isinstance(space := getattr(made, name, None), gym.Space):
            found = "no" if space is None else f"a {type(space).__name__} as"
            raise EnvError(f"{made} has {found} {name}; accepted is a gymnasium.Space that its constructor sets")
    return made


def is_of_gymnasium(make_env: MakeEnv) -> bool:
    """Whether it makes an environment that Gymnasium itself registers, which every process can make."""
    name = getattr(make_env, "env", None)
    known = gym.registry.get(name) if isinstance(name, str) else None
    return known is not None and str(known.entry_point).startswith("gymnasium.")


def _name_failure(make: Callable[[], gym.Env], name: str) -> gym.Env:
    try:
        return make()
    except SpoError:
        raise
    except gym.error.DependencyNotInstalled as error:
        raise EnvError(f"environment {name!r} needs a package that is missing ({_sentence(error)}); {_advice(name)}")
    except gym.error.Error as error:
        raise EnvError(f"environment {name!r} is not a registered Gymnasium id: {_sentence(error)}{_hint(name)}")
    except ModuleNotFoundError as error:
        raise EnvError(f"environment {name!r} cannot be made: {_sentence(error)}")
    except Exception as error:
        raise EnvError(f"environment {name!r} cannot be made: {type(error).__name__}: {_sentence(error)}") from error


def _hint(name: str) -> str:
    """Return what to say of an id that Gymnasium does not know: one's own need their module, or another name in it."""
    module, colon, _ = name.rpartition(":")
    if not colon:
        return f" One of yours is named with its module: my_module:{name}"
    kinds = vars(importlib.import_module(module)).items()
    own = [key for key, kind in kinds if isinstance(kind, type) and issubclass(kind, gym.Env) and kind is not gym.Env]
    accepted = f", or one of its classes: {', '.join(own)}" if own else ""
    return f" Accepted is an id that {module} registers{accepted}"


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _advice(name: str) -> str:
    """Our own extra where there is one; otherwise Gymnasium's message already names what to install."""
    is_ours = "mujoco" in _entry_point(name)
    return "install it with: pip install 'simple-policy-optimization[mujoco]'" if is_ours else "see its message"


def _entry_point(env_id: str) -> str:
    spec = gym.registry.get(env_id)
    return str(spec.entry_point) if spec else ""


@contextmanager
def _quiet(env_id: str) -> Iterator[None]:
    """Hide two notices that repeat for every copy: Gymnasium's on old versions, MuJoCo's on old model files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        restore = _silence_mujoco() if "mujoco" in _entry_point(env_id) else lambda: None
        try:
            yield
        finally:
            restore()


def _silence_mujoco() -> Callable[[], None]:
    try:
        import mujoco
    except ImportError:
        return lambda: None

    previous = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    return lambda: mujoco.set_mju_user_warning(previous)
