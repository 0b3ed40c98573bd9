"""One contract, several backends: what they agree on, and how they fail."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import textwrap
import types
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import spo
from faulty import Elsewhere, Misbehaving
from lengths import leave_rest
from probes import Counting, EndlessReward, iterate, training
from spo.cli.training import parse_train
from spo.config.config import BACKENDS
from spo.config.sources import make_config
from spo.envs import Step, VecEnv, shared_memory
from spo.envs.factory import choose_backend
from spo.envs.make import EnvMaker
from spo.envs.subproc import SubprocVecEnv
from spo.envs.sync import SyncVecEnv
from spo.envs.watchdog import WatchdogVecEnv
from spo.errors import SpoError
from spo.spaces import ObservationLayout
from waiting import HELPERS, PATIENCE, is_alive, wait_for

needs_envpool = pytest.mark.skipif(find_spec("envpool") is None, reason="needs the extra envpool")
needs_mujoco = pytest.mark.skipif(find_spec("mujoco") is None, reason="needs the extra mujoco")
MUJOCO = ["Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Humanoid-v4", "HumanoidStandup-v4", "Walker2d-v4"]


@needs_envpool
@needs_mujoco
@pytest.mark.parametrize("env", MUJOCO)
def test_single_steps_of_envpool_equal_gymnasium(env):
    """From equal states: EnvPool's positions and velocities are read from its observation and set in Gymnasium."""
    from spo.envs.envpool import EnvPoolVecEnv

    shown = {"exclude_current_positions_from_observation": False}
    hidden = 2 if env == "HumanoidStandup-v4" else 0  # Gymnasium's Standup cannot show x and y
    reference = EnvMaker(env, {} if hidden else shown)()
    reference.reset(seed=0)
    model, draw = reference.unwrapped.model, np.random.default_rng(0)
    for _ in range(5):
        pool = EnvPoolVecEnv(env, 1, seed=int(draw.integers(1000)), threads=1, env_arg=shown)
        seen = pool.reset()[0]
        reference.unwrapped.set_state(seen[: model.nq], seen[model.nq : model.nq + model.nv])
        action = draw.uniform(pool.action_space.low, pool.action_space.high).astype(np.float64)
        step = pool.step(action[None])
        expected, reward, *_ = reference.step(action)
        assert step.reward[0] == pytest.approx(reward, abs=1e-5)
        seen, forces = step.observation[0, hidden:], slice(292, None)
        if env == "HumanoidStandup-v4":
            # It lies in many contacts, and its model stops the contact solver before convergence: the two engines'
            # forces (of order 100) then differ by up to 0.02, and velocities by what follows from that.
            np.testing.assert_allclose(seen[forces], expected[forces], rtol=1e-3, atol=2e-2)
            np.testing.assert_allclose(seen[:292], expected[:292], rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_allclose(seen, expected, rtol=1e-5, atol=1e-5)


@needs_envpool
@pytest.mark.parametrize("env", ["Humanoid-v4", "HumanoidStandup-v4"])
def test_contact_forces_are_not_left_out(env):
    from spo.envs.envpool import EnvPoolVecEnv

    pool = EnvPoolVecEnv(env, 2, seed=0, threads=1, env_arg={})
    pool.reset()
    forces = [pool.step(np.zeros((2, 17))).observation[:, -84:] for _ in range(60)]
    assert np.abs(forces).max() > 0


@needs_envpool
def test_envpool_resets_in_the_same_step_with_the_true_last_observation():
    from spo.envs.envpool import EnvPoolVecEnv

    pool = EnvPoolVecEnv("Hopper-v4", 4, seed=1, threads=1, env_arg={})
    pool.reset()
    draw, ends, length = np.random.default_rng(0), 0, np.zeros(4, int)
    for _ in range(200):
        step = pool.step(draw.uniform(-1, 1, (4, 3)))
        length += 1
        done = step.terminated | step.truncated
        assert (step.reward != 0).all()  # no dummy step is seen
        for episode in step.episodes:
            assert done[episode.env] and episode.length == length[episode.env]
        for n in np.flatnonzero(done):
            ends += 1
            assert abs(step.observation[n, 0] - 1.25) < 0.01  # upright again
            assert step.final_observation[n, 0] < 0.7 or abs(step.final_observation[n, 1]) > 0.2  # and had fallen
        length[done] = 0
    assert ends > 5


@needs_envpool
@needs_mujoco
def test_envpool_repeats_whatever_the_threads():
    first, second = ([row["policy_loss"] for row in iterate(training("Hopper-v4", backend="envpool", preset="mujoco",
                     threads=threads), 2)] for threads in (1, min(2, os.cpu_count())))  # fmt: skip
    assert first == pytest.approx(second, rel=1e-5)


@pytest.mark.parametrize(
    "backend, env",
    [
        ("process", "CartPole-v1"),
        ("shared", "Hopper-v4"),
        pytest.param("process", "Hopper-v4", marks=pytest.mark.rest),
        pytest.param("shared", "CartPole-v1", marks=pytest.mark.rest),
    ],
)
def test_workers_give_the_same_run_bit_for_bit(backend, env):
    settings = {"envs": 5, "horizon": 64, "minibatches": 4, "threads": min(2, os.cpu_count())}
    apart, together = (training(env, backend=backend, **settings) for backend in (backend, "gymnasium"))
    try:
        assert iterate(apart, 3) == iterate(together, 3)
        assert apart.parameters.vector.equal(together.parameters.vector)
    finally:
        apart.envs.close()


@pytest.mark.parametrize("backend", ["process", "shared"])
def test_counting_through_workers(backend):
    """Episodes and steps follow each other as in this process; the ends, and what stood before them, are the same."""
    settings = {"envs": 3, "horizon": 20, "minibatches": 4, "normalize_observation": "off", "normalize_reward": "off"}
    settings["threads"] = min(2, os.cpu_count())
    apart, together = (training(Counting, backend=backend, **settings) for backend in (backend, "gymnasium"))
    try:
        rollouts = [run.collector.collect() for run in (apart, together)]
    finally:
        apart.envs.close()
    assert rollouts[0].observation[..., 1:].equal(rollouts[1].observation[..., 1:])  # the first counts per process
    for name in ("reward", "terminated", "done"):
        assert getattr(rollouts[0], name).equal(getattr(rollouts[1], name)), name
    assert sorted(rollouts[0].episodes) == sorted(rollouts[1].episodes)


def counting_vector(mode):
    def make():
        return gym.vector.SyncVectorEnv([lambda i=i: named(i) for i in range(3)], autoreset_mode=mode)

    def named(index):
        env = Counting()
        env.index = index
        return env

    return make


@pytest.mark.parametrize("mode", list(gym.vector.AutoresetMode))
def test_a_users_vector_environment_in_every_autoreset_mode(mode):
    settings = {"envs": 3, "horizon": 20, "minibatches": 4, "normalize_observation": "off", "normalize_reward": "off"}
    Counting.made = 0
    expected = training(Counting, **settings).collector.collect()
    rollout = training(counting_vector(mode), **settings).collector.collect()
    for name in ("observation", "reward", "terminated", "done"):
        assert getattr(rollout, name).equal(getattr(expected, name)), name
    assert sorted(rollout.episodes) == sorted(expected.episodes)


def test_a_vector_environment_of_another_size_is_refused():
    with pytest.raises(SpoError, match="--envs 8 is not accepted: the vector environment that was made has 3"):
        training(counting_vector(gym.vector.AutoresetMode.SAME_STEP), envs=8)


@needs_envpool
def test_the_rule_of_auto():
    def chosen(env, threads, **settings):
        return choose_backend(make_config(env, **settings), threads)[0]

    assert chosen("Humanoid-v4", 1) == chosen("Humanoid-v4", 2) == chosen("CartPole-v1", 2) == "gymnasium"
    assert chosen("Breakout", 1) == "gymnasium" and chosen("Breakout", 2) == "envpool"
    assert chosen("Humanoid-v4", 2, env_arg={"xml_file": "mine.xml"}) == "gymnasium"
    assert chosen("Humanoid-v4", 2, backend="process") == "process"


@needs_envpool
@pytest.mark.parametrize("setting", ["rebuild_every", "seam_every"])
def test_a_pool_is_rebuilt_after_the_steps_of_so_many_iterations(setting):
    run = training("CartPole-v1", backend="envpool", envs=2, horizon=16, minibatches=2, **{setting: 3})
    assert (run.config.rebuild_every, run.envs.rebuild_after_steps, run.rebuild_every) == (3, 48, 3)
    run.envs.close()
    from_flags = parse_train(["CartPole-v1", f"--{setting.replace('_', '-')}", "3"])
    assert from_flags.rebuild_every == 3


def test_a_callable_is_never_taken_for_a_game():
    run = training(EndlessReward, threads=min(2, os.cpu_count()))
    assert run.backend == "gymnasium" and run.config.env == "probes.EndlessReward"


@needs_envpool
def test_tasks_that_only_envpool_has_are_trained_and_evaluated(tmp_path):
    """With a Dict of numbers, one of them without an axis."""
    short = {"steps": 64, "envs": 2, "horizon": 16, "minibatches": 2, "epochs": 1}
    run = spo.train("WalkerWalk", out=str(tmp_path / "run"), quiet=True, **short)
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["resolved"]["backend"] == "envpool"
    assert (record["settings"]["env"], record["settings"]["preset"]) == ("WalkerWalk-v1", "dm-control")
    assert isinstance(run.policy.spec.observation_space, gym.spaces.Dict) and run.policy.spec.layout.shape == (24,)
    assert spo.evaluate(run.directory, episodes=2, max_steps=5).lengths == [5, 5]


@needs_envpool
@pytest.mark.parametrize(
    "name, full",
    [
        ("Go1JoystickFlatTerrain", "Go1JoystickFlatTerrain-v1"),
        ("FetchReach", "FetchReach-v4"),  # the newest of two
        ("Breakout", "Breakout"),  # a game of Atari, which EnvPool calls Breakout-v5
        ("CheetahRun-v1", "CheetahRun-v1"),
        ("Nothing", "Nothing"),
    ],
)
def test_a_task_that_only_envpool_has_needs_no_version(name, full):
    assert spo.make_config(name).env == full


@needs_envpool
def test_a_pools_dict_is_packed_as_single_observations_are():
    from spo.envs.envpool import EnvPoolVecEnv

    envs = EnvPoolVecEnv("WalkerWalk-v1", 3, 1, 1, {})
    seen = envs.pool.reset()[0]
    packed = envs.layout.pack_batch(seen, 3)
    assert packed.shape == (3, 24) and packed.dtype == np.float32
    assert packed[1].tolist() == np.concatenate([np.ravel(seen[key][1]) for key in seen]).astype(np.float32).tolist()
    step = envs.step(np.zeros((3, 6), np.float32))
    assert step.observation.shape == (3, 24) and step.final_observation is None
    envs.close()


@needs_envpool
def test_envpool_says_what_it_does_not_have():
    with pytest.raises(SpoError, match="--backend envpool does not have environment 'LunarLander-v99'"):
        training("LunarLander-v99", backend="envpool")
    with pytest.raises(SpoError, match="needs the id of an environment"):
        training(EndlessReward, backend="envpool")


def children() -> set[str]:
    """Workers that are alive, as Python knows them: ps cuts their commands off where the interpreter's path is long."""
    return {process.name for process in multiprocessing.active_children()}


DEEDS = {
    "raise": r"raised RuntimeError: gearbox broke .its step 5. .line \d+ of .*faulty.py, in step.",
    "exit": r"ended its worker process with code 7 .its step 5",
    "kill": r"ended its worker process with code -9 .its step 5",
    "hang": r"did not answer within 2 s .its step 5",
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_worker_that_misbehaves_is_named_and_nothing_is_left_behind(deed):
    before = children()
    envs = SubprocVecEnv(partial(SyncVecEnv, make_env=partial(Misbehaving, deed), seed=1), 2, 2, PATIENCE)
    envs.reset()
    for _ in range(4):
        envs.step(np.zeros(2, int))
    envs.timeout = 2.0 if deed == "hang" else PATIENCE  # only a step that never ends is in a hurry
    with pytest.raises(SpoError, match="environment 0 " + DEEDS[deed]):
        envs.step(np.zeros(2, int))
    assert children() <= before


def helped(deed: str) -> shared_memory.SharedMemoryVecEnv:
    make = Elsewhere(deed)
    return shared_memory.start_shared_envs(partial(SyncVecEnv, make_env=make, seed=1), 4, 2)


@pytest.mark.parametrize("deed", ["raise", "exit", "kill"])
def test_a_helper_that_misbehaves_is_named_and_nothing_is_left_behind(deed):
    before = children()
    envs = helped(deed)
    envs.reset()
    with pytest.raises(SpoError, match="environment 2 " + DEEDS[deed]):
        for _ in range(5):
            envs.step(np.zeros(4, int))
    envs.close()
    assert children() <= before


def test_a_helper_that_hangs_is_named_by_the_watchdog(monkeypatch):
    told, helpers = [], helped("hang")
    monkeypatch.setattr("spo.envs.watchdog.os._exit", lambda code: helpers.workers[0].process.kill())
    envs = WatchdogVecEnv(helpers, 2.0, told.append)
    try:
        envs.reset()
        with pytest.raises(SpoError, match="environment 2 ended its worker process with code -9"):
            for _ in range(5):
                envs.step(np.zeros(4, int))
    finally:
        envs.close()
    assert told[0] == "environment 2 did not answer within 2 s (its step 5)"


def test_ends_of_episodes_in_a_helper_are_those_of_this_process():
    """The last observation, the first of the next episode, and what it came to; some end together, by their limit."""
    make = EnvMaker("CartPole-v1", {"max_episode_steps": 12})
    envs = shared_memory.start_shared_envs(partial(SyncVecEnv, make_env=make, seed=1), 8, 2)
    alone, seen = SyncVecEnv(make, range(8), seed=1), []
    try:
        assert np.array_equal(envs.reset(), alone.reset())
        for t in range(100):
            ours, theirs = (each.step(np.where(np.arange(8) % 2, 1, t % 2)) for each in (envs, alone))
            assert all(map(np.array_equal, ours[:5], theirs[:5])) and ours.episodes == theirs.episodes
            seen += ours.episodes
    finally:
        envs.close()
    assert {episode.env for episode in seen} == set(range(8)) and 12 in {episode.length for episode in seen}


def test_a_bell_is_heard_in_memory_before_anyone_reads():
    here, there = socket.socketpair()
    counts = np.zeros((2, 8), np.int64)
    mine, yours = shared_memory.Doorbell(here, *counts), shared_memory.Doorbell(there, *reversed(counts))
    mine.notify(b"s")
    assert yours.received[0] == 1 and mine.received[0] == 0 and yours.wait() == b"s"
    here.close()
    assert yours.wait() == b""


def test_a_helper_gets_actions_of_the_type_that_an_environment_gets_elsewhere():
    """Of another type, the same number can come to another reward."""
    assert shared_memory._action(SyncVecEnv(partial(gym.make, "Pendulum-v1"), [0], seed=1)) == ((1,), np.float32)
    assert shared_memory._action(SyncVecEnv(partial(gym.make, "CartPole-v1"), [0], seed=1)) == ((), np.int64)


class Wider(gym.ObservationWrapper):
    """Gives doubles, whatever its space says."""

    def observation(self, observation):
        return observation.astype(np.float64) / 3


def wider():
    return Wider(gym.make("CartPole-v1"))


def test_numbers_of_another_type_than_the_space_says_are_kept():
    envs = shared_memory.start_shared_envs(partial(SyncVecEnv, make_env=wider, seed=1), 2, 2)
    alone = SyncVecEnv(wider, [0, 1], seed=1)
    try:
        assert np.array_equal(envs.reset(), alone.reset())
        steps = [each.step(np.ones(2, int)).observation for each in (envs, alone)]
    finally:
        envs.close()
    assert steps[0].dtype == steps[1].dtype == np.float64 and np.array_equal(*steps)


@pytest.mark.parametrize("backend", leave_rest(["process", "shared"], "shared"))
def test_a_plain_script_can_train_with_workers(backend, tmp_path):
    """One that does not ask whether it is the main module: a worker must not run it again."""
    settings = f"backend='{backend}', threads={min(2, os.cpu_count())}, envs=2, horizon=16, steps=64, minibatches=1"
    script = tmp_path / "script.py"
    script.write_text(
        f"import spo\nspo.train('CartPole-v1', preset='classic', {settings}, quiet=True, out='run')\nprint('trained')\n"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, text=True, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0 and done.stdout == "trained\n", done


@pytest.mark.parametrize("backend", leave_rest(["process", "shared"], "process"))
def test_python_ends_though_nobody_closed_the_environments(backend):
    code = f"""
        from probes import training
        if __name__ == "__main__":
            run = training("CartPole-v1", envs=2, backend="{backend}", threads={min(2, os.cpu_count())})
            run.collector.collect()
            print("done", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=HELPERS,
        text=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0 and done.stdout == "done\n", done


class Waiting(VecEnv):
    """The least that a backend is: it counts its steps, and its episodes have no end."""

    observation_space, action_space = gym.spaces.Box(-np.inf, np.inf, (1,)), gym.spaces.Discrete(2)

    def __init__(self, count: int):
        self.num_envs, self.layout = count, ObservationLayout(self.observation_space)

    def reset(self) -> np.ndarray:
        self.observation = np.zeros((self.num_envs, 1), np.float32)
        return self.observation

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        self.observation, goes_on = self.observation + 1, np.zeros(self.num_envs, bool)
        return Step(self.observation, np.ones(self.num_envs), goes_on, goes_on, None, [])


def test_a_backend_is_a_module_and_its_name(monkeypatch):
    """What it lacks has defaults: a watchdog, no masks, and a new episode wherever a run resumes."""
    module = types.ModuleType("spo.envs.waiting")
    module.make_envs = lambda config, maker, threads: Waiting(config.envs)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(BACKENDS, "waiting", "waiting")
    monkeypatch.setattr("spo.trainer.choose_backend", lambda config, threads: ("waiting", "as asked"))
    run = training("CartPole-v1", envs=2, horizon=8, minibatches=1)
    assert isinstance(run.envs, WatchdogVecEnv) and run.collector.mask is None and run.can_resume_here
    assert [row["env_steps"] for row in iterate(run, 2)] == [16, 32]
    state = run.collector.state()
    run.envs.step(np.zeros(2, int))
    assert set(run.collector.restore(state)) == {0, 1} and run.envs.steps == 16 and not run.envs.observation.any()
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (VecEnv,), {"reset": Waiting.reset})()


def test_a_set_up_that_fails_leaves_no_worker_behind():
    before = children()
    with pytest.raises(SpoError, match="holds no policy") as refusal:
        training("CartPole-v1", backend="process", envs=2, threads=1, init_from="nowhere")
    assert children() <= before, refusal.value


def test_an_environment_that_cannot_be_sent_is_named():
    with pytest.raises(
        SpoError, match="--backend process .or shared. needs an environment that can be sent to another process"
    ):
        training(lambda: EndlessReward(3), backend="process", envs=2)


def script(code: str, *arguments: str, wait: bool = True):
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    places = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HELPERS,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
    )
    return process.communicate(timeout=PATIENCE) + (process.returncode,) if wait else process


def test_a_hanging_environment_in_this_process_is_named_by_the_watchdog(tmp_path):
    out, err, code = script(
        """
        import sys, spo
        from functools import partial
        from faulty import Misbehaving
        hanging = partial(Misbehaving, "hang")
        spo.train(hanging, preset="classic", steps=5000, env_timeout=2.0, quiet=True, out=sys.argv[1])
        """,
        str(tmp_path / "run"),
    )
    assert code == 2 and "error: environment 0 did not answer within 2 s (its step 5)" in err
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert status["state"] == "failed" and "did not answer" in status["reason"]


def test_workers_end_with_a_killed_parent():
    process = script(
        """
        import time
        from functools import partial
        from spo.envs.make import EnvMaker
        from spo.envs.subproc import SubprocVecEnv
        from spo.envs.sync import SyncVecEnv
        if __name__ == "__main__":
            envs = SubprocVecEnv(partial(SyncVecEnv, make_env=EnvMaker("CartPole-v1", {}), seed=1), 2, 2, 600.0)
            envs.reset()
            print(*(worker.process.pid for worker in envs.workers), flush=True)
            time.sleep(600)
        """,
        wait=False,
    )
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    process.kill()
    process.wait()
    wait_for(lambda: not any(map(is_alive, pids)))


def test_no_worker_imports_torch():
    """An environment says whether its process has; this one has, because it knows the types of actions."""
    out, err, code = script(
        """
        from functools import partial
        import numpy as np
        from probes import Witness
        from spo.envs.sync import SyncVecEnv
        from spo.envs.subproc import SubprocVecEnv
        from spo.envs.shared_memory import start_shared_envs
        if __name__ == "__main__":
            make = partial(SyncVecEnv, make_env=Witness, seed=1)
            for envs in (start_shared_envs(make, 2, 2), SubprocVecEnv(make, 2, 2, 60.0)):
                envs.reset()
                print(*envs.step(np.zeros(2, np.int64)).observation[:, 0])
                envs.close()
        """
    )
    assert (out.split(), code) == (["1.0", "0.0", "0.0", "0.0"], 0), err
