"""Gymnasium environments stepped one after the other in this process: the reference backend."""

import gymnasium as gym
import numpy as np

from spo.envs import Episode, Step
from spo.envs.making import MakeEnv
from spo.errors import Refusal
from spo.seeding import episode_seed


class InProcess:
    """N copies of an environment; every episode is seeded from (seed, environment, episode)."""

    def __init__(self, make_env: MakeEnv, count: int, seed: int):
        self.count, self.seed = count, seed
        self.envs = [make_env() for _ in range(count)]
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space
        self.steps = 0
        self.episode = np.full(count, -1)  # the index of each environment's running episode
        self.total_reward = np.zeros(count)
        self.length = np.zeros(count, dtype=int)

    def reset(self) -> np.ndarray:
        return np.stack([self._start_episode(index) for index in range(self.count)])

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        observations = []
        reward = np.empty(self.count)
        terminated, truncated = np.empty(self.count, dtype=bool), np.empty(self.count, dtype=bool)
        for index, env in enumerate(self.envs):
            try:
                observation, reward[index], terminated[index], truncated[index], _ = env.step(action[index])
            except Exception as error:
                self._fail(index, f"raised {type(error).__name__}: {error}", error)
            observations.append(self._checked(index, observation))
        self.total_reward += reward
        self.length += 1
        final = np.stack(observations)
        if not (terminated.any() or truncated.any()):
            return Step(final, reward, terminated, truncated, None, [])
        observation, episodes = self._restart(final, terminated | truncated)
        return Step(observation, reward, terminated, truncated, final, episodes)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _restart(self, final: np.ndarray, done: np.ndarray) -> tuple[np.ndarray, list[Episode]]:
        """The observations after resetting where an episode is done, and the episodes that ended."""
        observation, episodes = final.copy(), []
        for index in np.flatnonzero(done).tolist():
            episodes.append(Episode(index, float(self.total_reward[index]), int(self.length[index])))
            observation[index] = self._start_episode(index)
        return observation, episodes

    def _start_episode(self, index: int) -> np.ndarray:
        self.episode[index] += 1
        self.total_reward[index], self.length[index] = 0.0, 0
        seed = episode_seed(self.seed, index, int(self.episode[index]))
        try:
            observation, _ = self.envs[index].reset(seed=seed)
        except Exception as error:
            self._fail(index, f"raised {type(error).__name__} in reset: {error}", error)
        return self._checked(index, observation)

    def _checked(self, index: int, observation: np.ndarray) -> np.ndarray:
        if np.shape(observation) != self.observation_space.shape:
            expected = self.observation_space.shape
            self._fail(index, f"returned an observation of shape {np.shape(observation)}, its space says {expected}")
        return observation

    def _fail(self, index: int, what: str, cause: Exception | None = None):
        raise Refusal(f"environment {index} {what} (its step {self.steps})") from cause


def check_observation_space(space: gym.Space) -> None:
    """Refuses what the networks cannot read yet."""
    if not (isinstance(space, gym.spaces.Box) and len(space.shape) == 1):
        raise Refusal(f"observation space {space} is not supported; accepted is a Box with one dimension")
