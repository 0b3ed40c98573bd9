"""NaN never trains, a faulty environment is named, and whatever goes wrong, the last good checkpoint stays."""

import os
import random
from functools import partial

import numpy as np
import pytest

import spo
import spo.trainer
from crash import SHORT, child, remains, start_or_resume
from faulty import Faulty, FaultyLater
from probes import Probe, training
from spo.errors import SpoError
from spo.runs import checkpoint
from spo.runs.directory import RunDirectory
from waiting import PATIENCE, children, end_of, is_alive, wait_for

BAD = (float("nan"), float("inf"), float("-inf"))


class Inject:
    """Puts a bad number somewhere, once, at a moment of the run that a draw decides."""

    def __init__(self, what: str, bad: float, iteration: int, place: int):
        self.what, self.bad, self.iteration, self.place = what, bad, iteration, place

    def __call__(self, training: spo.trainer.Trainer, row: dict) -> None:
        if training.iteration == self.iteration:
            getattr(self, self.what)(training)

    def observation(self, training):
        self._into_next_step(training, "observation")

    def reward(self, training):
        self._into_next_step(training, "reward")

    def _into_next_step(self, training, field):
        envs = training.envs.envs
        original = envs.step

        def step(action):
            result = original(action)
            getattr(result, field).flat[self.place % getattr(result, field).size] = self.bad
            return result

        envs.step = step

    def action(self, training):
        original = training.distribution.sample

        def sample(params, noise):
            action = original(params, noise)
            action.flat[self.place % action.size] = self.bad
            return action

        training.collector.distribution = _with(training.distribution, sample=sample)

    def loss(self, training):
        loss = training.update.epochs.loss
        original = loss.inputs
        loss.inputs = lambda *arguments: {name: value * self.bad for name, value in original(*arguments).items()}

    def gradient(self, training):
        stepper = training.update.epochs.stepper

        def step(*arguments):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    "spo.algorithms.minibatch_update.gradient", self._poisoned(spo.algorithms.minibatch_update.gradient)
                )
                return stepper(*arguments)

        training.update.epochs.step = step

    def _poisoned(self, gradient):
        def called(*arguments):
            slope, stats = gradient(*arguments)
            slope[self.place % slope.numel()] = self.bad
            return slope, stats

        return called

    def parameters(self, training):
        training.parameters.vector[self.place % training.parameters.vector.numel()] = self.bad

    def moments(self, training):
        moment = (training.update.epochs.adam.first, training.update.epochs.adam.second)[self.place % 2]
        moment[self.place % moment.numel()] = self.bad


def _with(thing, **methods):
    """The same object with other methods."""
    import copy

    changed = copy.copy(thing)
    for name, method in methods.items():
        object.__setattr__(changed, name, method)
    return changed


KINDS = ("observation", "reward", "action", "loss", "gradient", "parameters", "moments")


def test_nothing_that_is_not_finite_is_ever_trained_on(tmp_path, amount, capsys):
    """Injections: each stops the run in the iteration it happens in, and no checkpoint holds a trace of it."""
    seed, count = 11, amount(24, 200)
    draw = random.Random(seed)
    for number in range(count):
        what = KINDS[number % len(KINDS)]
        at, place, bad = draw.randint(1, 5), draw.randrange(10**6), draw.choice(BAD)
        out = tmp_path / str(number)
        with pytest.raises(SpoError) as refusal:
            spo.train("Pendulum-v1", **SHORT, out=str(out), callback=Inject(what, bad, at, place))
        case = f"injection {number} (seed {seed}): {what} {bad} after iteration {at}: {refusal.value}"
        assert str(refusal.value).endswith(f"in iteration {at + 1}"), case
        run = RunDirectory(out)
        status = run.read_status()
        assert (status["state"], status["checkpoint"]) == ("failed", at) and status["reason"] == str(refusal.value)
        arrays, _ = checkpoint.split(checkpoint.load_newest(run)[0].state)
        assert all(np.isfinite(array).all() for array in arrays.values()), case
        assert len(run.read_metrics()) == at
    with capsys.disabled():
        print(f"\n{count} injections, seed {seed}")


@pytest.mark.parametrize(
    "what, bad, words",
    [("loss", BAD[0], "policy loss"), ("gradient", BAD[0], "grad norm"), ("gradient", BAD[1], "grad norm")],
)
def test_a_bad_gradient_changes_nothing(what, bad, words):
    """The optimiser's step is not made: parameters and moments stay as they were, to the bit."""
    run = training("Pendulum-v1", envs=2, horizon=16, epochs=1, minibatches=1)
    run.iterate()
    before = {name: array.copy() for name, array in checkpoint.split(run.state())[0].items()}
    Inject(what, bad, 1, 5)(run, {})
    with pytest.raises(SpoError, match=f"training diverged: the {words} became {bad} at minibatch 1"):
        run.iterate()
    after = checkpoint.split(run.state())[0]
    for name in ("parameters", "improve/epochs/first", "improve/epochs/second"):
        assert (after[name] == before[name]).all(), name


@pytest.mark.parametrize("what", ["parameters", "first moments", "second moments"])
def test_what_the_last_step_spoils_is_noticed_in_its_iteration(what):
    """No later minibatch looks at it, and no checkpoint may hold it."""
    run = training("Pendulum-v1", envs=2, horizon=16, epochs=1, minibatches=1)
    adam, stepper = run.update.epochs.adam, run.update.epochs.stepper
    tensor = {"parameters": run.parameters.vector, "first moments": adam.first, "second moments": adam.second}[what]

    def step(*arguments):
        row = stepper(*arguments)
        tensor[-1] = BAD[0]
        return row

    run.update.epochs.step = step
    with pytest.raises(SpoError, match=f"training diverged: 1 of the {what} are not finite, in iteration 1"):
        run.iterate()


def test_the_statistics_of_an_iteration_are_finite(monkeypatch):
    run = training("Pendulum-v1", envs=2, horizon=16, epochs=1, minibatches=1)
    monkeypatch.setattr("spo.algorithms.minibatch_update.divergences", lambda *_: {"kl": BAD[0]})
    with pytest.raises(SpoError, match="training diverged: the kl became nan, in iteration 1"):
        run.iterate()


def test_a_policy_without_spread_is_not_acted_on():
    """Its actions would be finite, and their log-probabilities not."""
    run = training("Pendulum-v1", envs=2, horizon=4, minibatches=2)
    run.network.log_std.data.fill_(-np.inf)
    with pytest.raises(SpoError, match="the output of the policy of environment 0 is not finite .-inf. at its step 0"):
        run.iterate()


@pytest.mark.parametrize("what", ["output of the policy", "value"])
def test_what_the_networks_say_is_checked(what):
    run = training("Pendulum-v1", envs=2, horizon=4, minibatches=2)
    act = run.collector.actor

    def spoiled(observation):
        dist_params = act.dist_params(observation)
        return (spoilt(dist_params) if what == "output of the policy" else dist_params), None

    def spoilt(array):
        array[1] = BAD[0]
        return array

    spoiled.sync_weights = act.sync_weights
    spoiled.value = lambda observation: spoilt(act.value(observation))
    run.collector.actor = spoiled
    with pytest.raises(
        SpoError, match=f"the {what} of environment 1 is not finite .nan. at its step 0, in iteration 1"
    ):
        run.iterate()


def test_no_environment_sees_an_action_that_is_not_finite():
    run = training("Pendulum-v1", envs=2, horizon=4, minibatches=2)
    Inject("action", BAD[0], 0, 1)(run, {})
    with pytest.raises(SpoError, match="the action of environment 1 is not finite .nan. at its step 0, in iteration 1"):
        run.iterate()


class Fleeting(Probe):
    """Misbehaves at its start or at its end, which is its first step."""

    def __init__(self, fault: str):
        super().__init__()
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fault == "exits":
            raise SystemExit(3)
        return self.see(np.nan if self.fault == "starts blind" else 0.0), {}

    def step(self, action):
        return self.see(np.nan if self.fault == "ends blind" else 0.0), 1.0, True, False, {}


@pytest.mark.parametrize(
    "fault, words",
    [
        ("starts blind", "the observation of environment 0 is not finite .nan. at its step 0"),
        ("ends blind", "the final observation of environment 0 is not finite .nan. at its step 1"),
        ("exits", "environment 0 raised SystemExit in reset: 3 .its step 0."),
    ],
)
def test_starts_and_ends_of_episodes_are_checked(fault, words):
    with pytest.raises(SpoError, match=words):
        training(partial(Fleeting, fault), envs=2, horizon=4, minibatches=2).iterate()


@pytest.mark.parametrize("objective", ["spo", "simple", "ppo-clip"])
def test_a_huge_log_ratio_does_not_overflow(objective):
    """e^(log-ratio) would be infinite beyond 88; the update stays finite, or is refused with a name."""
    run = training("Pendulum-v1", envs=2, horizon=16, epochs=3, minibatches=1, objective=objective, learning_rate=50.0)
    try:
        for _ in range(3):
            row, _ = run.iterate()
            assert all(np.isfinite(value) for value in row.values())
    except SpoError as refusal:
        assert "not finite" in str(refusal) or "training diverged" in str(refusal)
    assert run.parameters.vector.isfinite().all()


@pytest.mark.parametrize("objective", ["spo", "simple", "ppo-clip"])
def test_a_log_ratio_of_a_hundred_is_learned_from(objective, monkeypatch):
    """As if the old policy had all but ruled out what it did: the loss bounds the ratio, and all stays finite."""
    make_batch = spo.trainer.make_batch

    def unlikely(*arguments):
        batch = make_batch(*arguments)
        return batch._replace(old_log_prob=batch.old_log_prob - 100)

    monkeypatch.setattr("spo.trainer.make_batch", unlikely)
    run = training("Pendulum-v1", envs=2, horizon=16, epochs=1, minibatches=1, objective=objective)
    row, _ = run.iterate()
    assert all(np.isfinite(value) for value in row.values())


FAULTS = {
    "raises": "environment 0 raised RuntimeError: no more",
    "exits": "environment 0 raised SystemExit: 3",
    "is_killed": "environment 0 ended its worker process with code -9",
    "hangs": "environment 0 did not answer within 2 s",
    "sees_nan": "the observation of environment 0 is not finite (nan)",
    "is_paid_infinity": "the reward of environment 0 is not finite (inf)",
    "sees_too_much": "the observation of environment 0 is larger than a 32-bit float holds (1e+200)",
    "is_paid_too_much": "the reward of environment 0 is larger than a 32-bit float holds (1e+200)",
    "sees_another_shape": "environment 0 returned an observation of shape (2,), its space says (1,)",
    "sees_another_type": "environment 0 returned an observation of type",
}


@pytest.mark.parametrize("backend", ["gymnasium", "process"])
@pytest.mark.parametrize("deed", FAULTS)
def test_a_faulty_environment_is_named_and_nothing_is_left_behind(deed, backend, tmp_path):
    """The matrix: what goes wrong × where. In this process a death cannot be survived, only left in good order."""
    settings = {
        "backend": backend,
        "env_timeout": 2.0 if deed == "hangs" else PATIENCE,
        "envs": 1,
        "horizon": 2,
        "minibatches": 1,
        "steps": 400,
        "threads": 1,
    }
    process = child(tmp_path / "run", partial(Faulty, deed), settings)
    wait_for(lambda: (tmp_path / "run" / "config.json").exists() or not process.is_alive())
    workers = children(process.pid)
    code = end_of(process)
    run = RunDirectory(tmp_path / "run")
    if backend == "gymnasium" and deed == "is_killed":
        assert code == -9 and run.read_status()["state"] == "running"
    else:
        assert code == 2
        status = run.read_status()
        assert status["state"] == "failed" and FAULTS[deed] in status["reason"] and "its step 3" in status["reason"]
    wait_for(lambda: not any(map(is_alive, workers)))
    assert checkpoint.load_newest(run)[0].iteration == 1


FAULTS_LATER = {
    "raises": "the environment raised RuntimeError in an evaluation: no more",
    "hangs": "the environment of an evaluation did not answer within 2 s",
    "is_paid_infinity": "the environment returned the reward inf in an evaluation; it must be finite",
}


@pytest.mark.parametrize("deed", FAULTS_LATER)
def test_a_fault_in_an_evaluation_is_named_too(deed, tmp_path):
    settings = {"envs": 1, "horizon": 2, "minibatches": 1, "steps": 400, "threads": 1, "eval_every": 2}
    timeout = {"env_timeout": 2.0 if deed == "hangs" else PATIENCE}
    assert end_of(child(tmp_path / "run", partial(FaultyLater, deed), settings | timeout)) == 2
    run = RunDirectory(tmp_path / "run")
    assert run.read_status()["state"] == "failed" and run.read_status()["reason"] == FAULTS_LATER[deed]
    assert checkpoint.load_newest(run)[0].iteration == 1


def test_an_evaluation_without_an_end_says_why_nothing_happens(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("spo.runs.recorder.LONG_EPISODE", 3)
    env = {"env_arg": {"max_episode_steps": 5}}
    spo.train("CartPole-v1", **SHORT | env | {"steps": 32, "eval_every": 1}, out=str(tmp_path / "run"))
    assert capsys.readouterr().err.count("warning: an episode of an evaluation has lasted") == 10


@pytest.mark.parametrize(
    "env, backend, threads",
    [
        ("CartPole-v1", "process", 1),
        (partial(Faulty, "hangs"), "process", 1),
        ("CartPole-v1", "shared", min(2, os.cpu_count())),
    ],
    ids=["at work", "hanging", "helping"],
)
def test_workers_end_with_a_killed_run(env, backend, threads, tmp_path):
    settings = {"backend": backend, "horizon": 2, "minibatches": 2, "steps": 4 * 10**6, "threads": threads}
    process = child(tmp_path / "run", env, settings)
    wait_for((tmp_path / "run" / "metrics.jsonl").exists)
    workers = children(process.pid)
    assert len(workers) >= (1 if backend == "shared" else 2)  # a helper for each further core
    process.kill()
    process.join()
    wait_for(lambda: not any(map(is_alive, workers)))


def test_a_failed_run_goes_on_once_its_environment_is_well(tmp_path):
    """An environment that fails, is repaired, and is resumed: as if it had never failed."""
    settings = {"steps": 32 * 6}
    start_or_resume(tmp_path / "whole", "Pendulum-v1", settings)
    with pytest.raises(SpoError, match="is not finite"):
        spo.train("Pendulum-v1", **SHORT | settings, out=str(tmp_path / "run"), callback=Inject("reward", BAD[0], 3, 0))
    spo.resume(tmp_path / "run", quiet=True)
    assert remains(tmp_path / "run") == remains(tmp_path / "whole")
