"""Tasks stepped together give the bits of Gymnasium's own steps; whatever is not Gymnasium's own is left to itself."""

import ctypes
import sys
import threading
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from spo.envs import mujoco_physics, mujoco_tasks
from spo.envs.make import EnvMaker
from spo.envs.mujoco_physics import NativeBatch, ThreadedSimulations
from spo.envs.mujoco_tasks import TASKS
from spo.envs.sync import SyncVecEnv
from spo.errors import SpoError
from waiting import PATIENCE, wait_for

ENVS, LIMIT, STEPS = 3, 24, 120
LIMITS = {"InvertedPendulum": 4, "InvertedDoublePendulum": 4}
"""Of those that nearly always fall before."""
TASKS_OF_THIS_PROCESS = Path("/proc/self/task")
ENDLESS = {"HalfCheetah", "HumanoidStandup", "Swimmer"}


def made(env: str, threads: int = 1, **env_arg) -> SyncVecEnv:
    return SyncVecEnv(EnvMaker(env, env_arg), range(ENVS), seed=1, threads=threads)


def one_by_one(env: str, **env_arg) -> SyncVecEnv:
    envs = made(env, **env_arg)
    envs.task = None
    return envs


def actions(envs: SyncVecEnv, steps: int = STEPS) -> np.ndarray:
    space = envs.action_space
    drawn = np.random.default_rng(0).normal(scale=space.high, size=(steps, ENVS, *space.shape))
    return np.clip(drawn, space.low, space.high).astype(np.float32)


@pytest.mark.parametrize(
    "version, threads", [(4, 2), (5, 1), *(pytest.param(*pair, marks=pytest.mark.rest) for pair in ((4, 1), (5, 2)))]
)
@pytest.mark.parametrize("name", TASKS)
def test_a_task_stepped_together_gives_the_bits_of_gymnasium(name, version, threads):
    env, limit = f"{name}-v{version}", LIMITS.get(name, LIMIT)
    together, alone = made(env, threads, max_episode_steps=limit), one_by_one(env, max_episode_steps=limit)
    assert together.task is not None and together.stepping_threads == threads
    compare(together, alone, name in ENDLESS)
    together.close()


def compare(together: SyncVecEnv, alone: SyncVecEnv, is_endless: bool) -> None:
    np.testing.assert_array_equal(together.reset(), alone.reset())
    terminated = truncated = 0
    for action in actions(together):
        seen, expected = together.step(action), alone.step(action)
        for ours, theirs in zip(seen[:4], expected[:4]):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(seen.final_observation, expected.final_observation)
        assert seen.episodes == expected.episodes
        terminated, truncated = terminated + seen.terminated.sum(), truncated + seen.truncated.sum()
    assert (terminated == 0) == is_endless
    assert truncated > 0


def test_without_mujocos_batch_the_bits_are_the_same(monkeypatch):
    """Which it has from version 4 on."""
    monkeypatch.setitem(sys.modules, "mujoco.batch", None)
    old = made("Walker2d-v5", threads=2, max_episode_steps=LIMIT)
    assert isinstance(old.task.simulations, ThreadedSimulations)
    compare(old, one_by_one("Walker2d-v5", max_episode_steps=LIMIT), is_endless=False)
    old.close()


def test_mujocos_batch_is_used_where_the_state_is_all_that_is_seen():
    kinds = {name: type(made(f"{name}-v4").task.simulations) for name in TASKS}
    looped = {"Ant", "Humanoid", "HumanoidStandup"}
    assert kinds == {name: ThreadedSimulations if name in looped else NativeBatch for name in TASKS}


@pytest.mark.parametrize("env", ["Hopper-v4", "Ant-v5"])
def test_an_episode_stepped_together_is_replayed_by_gymnasium(env):
    original, copy = made(env), made(env, threads=2)
    original.reset(), copy.reset()
    first, second = np.split(actions(original), 2)
    for action in first:
        original.step(action)
    assert copy.restore(original.state()) == {}
    for action in second:
        np.testing.assert_array_equal(copy.step(action).observation, original.step(action).observation)
    copy.close()


class Late(gym.Wrapper):
    """Does nothing at first, so that only knowing all wrappers helps."""

    steps = 0

    def step(self, action):
        self.steps += 1
        observation, reward, *others = self.env.step(action)
        return observation, reward * (2 if self.steps > 1000 else 1), *others


def wrapped() -> gym.Env:
    return Late(gym.make("Hopper-v4", disable_env_checker=True))


def inherited() -> gym.Env:
    class Own(type(gym.make("Hopper-v4").unwrapped)):
        pass

    env = gym.make("Hopper-v4", disable_env_checker=True)
    env.unwrapped.__class__ = Own
    return env


@pytest.mark.parametrize(
    ("env", "env_arg"),
    [
        ("CartPole-v1", {}),
        ("Reacher-v4", {}),
        ("Hopper-v4", {"healthy_reward": 2.0}),
        ("Ant-v4", {"use_contact_forces": True}),
        ("Hopper-v4", {"terminate_when_unhealthy": False}),
        ("Hopper-v5", {"render_mode": "rgb_array"}),
        (wrapped, {}),
        (inherited, {}),
    ],
)
def test_whatever_is_not_as_gymnasium_makes_it_steps_by_itself(env, env_arg):
    assert made(env, **env_arg).task is None


def test_environments_that_differ_step_by_themselves():
    lengths = iter((10, 20, 30))
    envs = SyncVecEnv(lambda: gym.make("Hopper-v4", max_episode_steps=next(lengths)), range(ENVS), seed=1)
    assert envs.task is None


@pytest.mark.parametrize("name", TASKS)
def test_a_task_that_gives_other_bits_is_not_trusted(name, monkeypatch):
    """As if Gymnasium's next release had changed it."""
    step = TASKS[name].step

    def step_otherwise(task, action):
        observation, reward, is_over = step(task, action)
        return observation, np.nextafter(reward, np.inf), is_over

    monkeypatch.setattr(TASKS[name], "step", step_otherwise)
    assert made(f"{name}-v5").task is None


@pytest.mark.parametrize("env", ["HalfCheetah-v4", "Humanoid-v4"])
def test_a_simulation_that_fails_is_one_sentence(env, monkeypatch):
    envs = made(env)
    envs.reset()

    def broken(_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(envs.task.simulations, "advance", broken)
    with pytest.raises(SpoError, match="environment 0 or one after it raised RuntimeError: out of memory"):
        envs.step(actions(envs)[0])


def test_what_fails_in_a_helping_thread_is_told():
    has_worked = threading.Event()

    def fail(job):
        has_worked.set()
        raise RuntimeError("out of memory")

    helper = mujoco_physics.StepThread(fail)
    helper.begin(iter([1]))
    with pytest.raises(RuntimeError, match="out of memory"):
        helper.end()
    assert has_worked.is_set()
    helper.close()


def test_threads_share_the_simulations_and_end_with_them():
    before = set(threading.enumerate())
    envs = made("Humanoid-v4", threads=8)
    assert envs.stepping_threads == ENVS  # more could not help
    (first, *others) = set(threading.enumerate()) - before
    assert len(others) == ENVS - 2
    envs.close()
    first.join(PATIENCE)
    assert not first.is_alive()


@pytest.mark.skipif(not TASKS_OF_THIS_PROCESS.exists(), reason="the system does not list threads")
def test_the_threads_of_mujocos_batch_end_with_it():
    def threads() -> set[str]:
        return {path.name for path in TASKS_OF_THIS_PROCESS.iterdir()}

    before = threads()
    envs = made("HalfCheetah-v4", threads=ENVS)
    begun = threads() - before
    assert len(begun) == ENVS - 1
    envs.close()
    wait_for(lambda: not begun & threads())  # the system may list a thread for a moment after its end


def test_mujoco_does_not_time_its_parts():
    import mujoco as library

    (path,) = Path(library.__file__).parent.glob("libmujoco.*")
    clock = ctypes.c_void_p.in_dll(ctypes.CDLL(str(path)), "mjcb_time")
    library.set_mjcb_time(None)  # the clock that Python's MuJoCo begins with, which an earlier test may have stopped
    assert clock.value is not None
    made("Swimmer-v4")
    assert clock.value is None


def test_the_bits_are_compared_before_the_first_episode_begins(monkeypatch):
    """Which starts as if nothing had been stepped."""
    checked = made("Walker2d-v5").reset()
    monkeypatch.setattr(mujoco_tasks, "VERIFY_STEPS", 1)
    np.testing.assert_array_equal(made("Walker2d-v5").reset(), checked)
