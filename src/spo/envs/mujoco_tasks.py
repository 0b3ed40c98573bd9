"""Gymnasium's MuJoCo tasks stepped together: the same simulations, to the same bits, without its work for each of them.

Half of a step of HalfCheetah in Gymnasium is Python around the simulation: views of MuJoCo's arrays made anew, rewards
of single numbers, dictionaries that a trainer never opens. Here the arrays are looked up once, and the numbers of all
environments are worked on side by side. Gymnasium still starts the episodes. A task is stepped this way only if it is
as Gymnasium makes it, and if both ways give the same bits at first; else Gymnasium's own step is taken.
"""

from collections.abc import Sequence

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from spo.envs.mujoco_physics import make_simulations

Outcome = tuple[np.ndarray, np.ndarray, np.ndarray]
"""What each environment shows, its reward, and whether its task ended."""

VERIFY_STEPS = 3
"""Of every environment, made both ways before the first episode."""
GYMNASIUM = "gymnasium.envs.mujoco."
"""Where the classes of Gymnasium's own tasks are."""


class Task:
    """What most of them have in common: velocity and health are rewarded, less the squares of the action."""

    excluded_positions = 1  # how many of the first positions are not observed
    velocity_weight, healthy_reward, action_weight = 1.0, 0.0, 0.1
    shows_forces = False
    outputs: tuple[str, ...] | None = ()  # what it looks at after a step, beside the state; None: before a step too

    def __init__(self, envs: Sequence[gym.Env], version: int, threads: int):
        self.count, self.model, self.seconds, self.version = len(envs), envs[0].model, envs[0].dt, version
        self.simulations = make_simulations(envs, threads, self.shows_forces, self.outputs)

    def step(self, action: np.ndarray) -> Outcome:
        before = self.x_position()
        self.simulations.advance(action)
        velocity = (self.x_position() - before) / self.seconds
        position, speed = self.simulations["qpos"], self.simulations["qvel"]
        is_healthy = self.is_healthy(position, speed)
        reward = self.velocity_weight * velocity + self._health_term(is_healthy) - self.control_cost(action)
        return self.observation(position[:, self.excluded_positions :], speed), reward, ~is_healthy

    def _health_term(self, is_healthy: np.ndarray) -> np.ndarray | float:
        """Version 4 rewards it in the step that ends an episode too."""
        return self.healthy_reward * is_healthy if self.version > 4 else self.healthy_reward

    def x_position(self) -> np.ndarray:
        return self.simulations["qpos"][:, 0].copy()

    def control_cost(self, action: np.ndarray) -> np.ndarray:
        return self.action_weight * squares(action)

    def is_healthy(self, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        return np.ones(self.count, dtype=bool)

    def observation(self, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        return np.concatenate((position, speed), axis=1)


class HalfCheetah(Task):
    """Has nothing of its own: it cannot fall."""


class Swimmer(Task):
    excluded_positions, action_weight = 2, 1e-4


class Walker2d(Task):
    healthy_reward, action_weight = 1.0, 1e-3

    def is_healthy(self, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        height, angle = position[:, 1], position[:, 2]
        return (height > 0.8) & (height < 2.0) & (np.abs(angle) < 1.0)

    def observation(self, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        return np.concatenate((position, np.clip(speed, -10, 10)), axis=1)


class Hopper(Walker2d):
    def is_healthy(self, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        height, angle = position[:, 1], position[:, 2]
        is_bounded = (np.abs(np.concatenate((position[:, 2:], speed), axis=1)) < 100).all(axis=1)
        return is_bounded & (height > 0.7) & (height < np.inf) & (np.abs(angle) < 0.2)


class Ant(Task):
    """From version 5 on, forces of contact are shown and cost."""

    excluded_positions, healthy_reward, action_weight = 2, 1.0, 0.5
    outputs = None

    def __init__(self, envs: Sequence[gym.Env], version: int, threads: int):
        self.shows_forces = version > 4
        super().__init__(envs, version, threads)

    def x_position(self) -> np.ndarray:
        return self.simulations["xpos"][:, 1, 0]  # of the torso

    def _forces(self) -> np.ndarray:
        return np.clip(self.simulations["cfrc_ext"], -1, 1)

    def control_cost(self, action: np.ndarray) -> np.ndarray:
        cost = super().control_cost(action)
        return cost + 5e-4 * squares(self._forces()) if self.shows_forces else cost

    def is_healthy(self, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        is_finite = np.isfinite(position).all(axis=1) & np.isfinite(speed).all(axis=1)
        return is_finite & (position[:, 2] >= 0.2) & (position[:, 2] <= 1.0)

    def observation(self, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        forces = [rows(self._forces()[:, 1:])] if self.shows_forces else []
        return np.concatenate((position, speed, *forces), axis=1)


class Humanoid(Task):
    """Shows what moves and pushes its bodies; version 5 leaves out the world's, which is at rest."""

    excluded_positions, velocity_weight, healthy_reward = 2, 1.25, 5.0
    shows_forces, outputs = True, None
    impact_weight = 5e-7

    def __init__(self, envs: Sequence[gym.Env], version: int, threads: int):
        super().__init__(envs, version, threads)
        self.mass = self.model.body_mass.copy()
        self.first_body, self.first_joint = (0, 0) if version == 4 else (1, 6)

    def x_position(self) -> np.ndarray:
        """Of the centre of mass."""
        return (np.einsum("b,nbj->nj", self.mass, self.simulations["xipos"]) / self.mass.sum())[:, 0]

    def control_cost(self, action: np.ndarray) -> np.ndarray:
        cost = self.action_weight * squares(self.simulations["ctrl"])
        return cost + self.impact() if self.version > 4 else cost

    def impact(self) -> np.ndarray:
        return np.minimum(self.impact_weight * squares(self.simulations["cfrc_ext"]), 10.0)

    def is_healthy(self, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        return (position[:, 2] > 1.0) & (position[:, 2] < 2.0)

    def observation(self, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        of_bodies = [self.simulations[name][:, self.first_body :] for name in ("cinert", "cvel", "cfrc_ext")]
        inertia, velocity, forces = map(rows, of_bodies)
        actuators = self.simulations["qfrc_actuator"][:, self.first_joint :]
        return np.concatenate((position, speed, inertia, velocity, actuators, forces), axis=1)


class HumanoidStandup(Humanoid):
    """Rewards height instead of velocity, and has no end."""

    def step(self, action: np.ndarray) -> Outcome:
        self.simulations.advance(action)
        position, speed = self.simulations["qpos"], self.simulations["qvel"]
        effort = self.action_weight * squares(self.simulations["ctrl"])
        reward = position[:, 2] / self.model.opt.timestep - effort - self.impact() + 1
        is_over = np.zeros(self.count, dtype=bool)
        return self.observation(position[:, self.excluded_positions :], speed), reward, is_over


class InvertedPendulum(Task):
    """Pays the same for every step until the pole has fallen."""

    healthy_reward = 1.0

    def step(self, action: np.ndarray) -> Outcome:
        self.simulations.advance(action)
        seen = self.observation(self.simulations["qpos"], self.simulations["qvel"])
        is_healthy = np.isfinite(seen).all(axis=1) & (np.abs(seen[:, 1]) <= 0.2)
        return seen, np.ones(self.count) * self._health_term(is_healthy), ~is_healthy


class InvertedDoublePendulum(Task):
    """Pays for a tip that is high, in the middle and at rest."""

    healthy_reward = 10.0
    outputs = ("site_xpos", "qfrc_constraint")

    def step(self, action: np.ndarray) -> Outcome:
        self.simulations.advance(action)
        tip, speed = self.simulations["site_xpos"][:, 0], self.simulations["qvel"]
        distance = 0.01 * powers(tip[:, 0]) + powers(tip[:, 2] - 2)
        restlessness = 1e-3 * powers(speed[:, 1]) + 5e-3 * powers(speed[:, 2])
        is_healthy = tip[:, 2] > 1
        reward = self._health_term(is_healthy) - distance - restlessness
        return self.observation(self.simulations["qpos"], speed), reward, ~is_healthy

    def observation(self, position: np.ndarray, speed: np.ndarray) -> np.ndarray:
        cart, angles = position[:, :1], position[:, 1:]
        forces = self.simulations["qfrc_constraint"][:, : 1 if self.version > 4 else None]
        bounded = (np.clip(numbers, -10, 10) for numbers in (speed, forces))
        return np.concatenate((cart, np.sin(angles), np.cos(angles), *bounded), axis=1)


TASKS = {
    task.__name__: task
    for task in (
        Ant,
        HalfCheetah,
        Hopper,
        Humanoid,
        HumanoidStandup,
        InvertedDoublePendulum,
        InvertedPendulum,
        Swimmer,
        Walker2d,
    )
}


def make_batched_task(envs: Sequence[gym.Env], threads: int) -> Task | None:
    """The task that steps all of them, if they are Gymnasium's own and it gives what they give."""
    spec = envs[0].spec
    if not all(_is_known(env) and env.spec == spec for env in envs):
        return None
    task = TASKS[spec.name]([env.unwrapped for env in envs], spec.version, threads)
    if _matches_gymnasium(task, envs):
        return task
    task.simulations.close()
    return None


def _is_known(env: gym.Env) -> bool:
    """Whether it is one of the tasks as Gymnasium makes it: with its own settings and wrappers, and shown to nobody."""
    spec, inner = env.spec, env.unwrapped
    if spec is None or spec.name not in TASKS or spec.version not in (4, 5):
        return False
    is_as_made = spec.kwargs in ({}, {"render_mode": None}) and type(inner).__module__.startswith(GYMNASIUM)
    return is_as_made and type(env) is TimeLimit and type(env.env) is OrderEnforcing and env.env.env is inner


def _matches_gymnasium(task: Task, envs: Sequence[gym.Env]) -> bool:
    """Whether both ways lead to the same bits. The environments have to be reset afterwards."""
    space = envs[0].action_space
    actions = np.linspace(space.low, space.high, VERIFY_STEPS * len(envs), dtype=space.dtype)
    actions = actions.reshape(VERIFY_STEPS, len(envs), *space.shape)
    _reset(task, envs)
    one_by_one = [[env.step(row)[:3] for env, row in zip(envs, action)] for action in actions]
    _reset(task, envs)
    together = [task.step(action) for action in actions]
    return all(map(_same, one_by_one, together))


def _reset(task: Task, envs: Sequence[gym.Env]) -> None:
    for index, env in enumerate(envs):
        env.reset(seed=index)
        task.simulations.sync_from_env(index)


def _same(one_by_one: list[tuple], together: Outcome) -> bool:
    return all(np.array_equal(np.array(single), joint) for single, joint in zip(zip(*one_by_one), together))


def rows(numbers: np.ndarray) -> np.ndarray:
    return numbers.reshape(len(numbers), -1)


def squares(numbers: np.ndarray) -> np.ndarray:
    """The sum of squares in each row."""
    return np.square(rows(numbers)).sum(axis=1)


def powers(numbers: np.ndarray) -> np.ndarray:
    """The square of each as Gymnasium takes it of single numbers: one in a thousand has another last bit."""
    return np.array([number**2 for number in numbers.tolist()])
