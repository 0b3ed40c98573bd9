"""A user's own Gymnasium vector environment, in any of its three autoreset modes."""

import gymnasium as gym
import numpy as np

from spo.envs import EpisodeStatistics, Step, VecEnv
from spo.errors import EnvError
from spo.runtime.seeding import derive_seed
from spo.spaces import ObservationLayout, check_maskable

SAME_STEP, RESETTABLE = gym.vector.AutoresetMode.SAME_STEP, "reset_mask"


class GymVectorAdapter(VecEnv):
    """Same-step semantics over any vector environment: it resets by itself, or is reset by mask right after an end."""

    def __init__(self, vector: gym.vector.VectorEnv, count: int, seed: int, encoder: str = "auto"):
        if vector.num_envs != count:
            raise EnvError(
                f"--envs {count} is not accepted: the vector environment that was made has {vector.num_envs}"
            )
        self.vector, self.num_envs, self.seed = vector, count, seed
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space
        self.layout = ObservationLayout(self.observation_space, encoder)
        is_box = isinstance(self.observation_space, gym.spaces.Box)
        if not is_box or not (self.layout.is_plain or self.layout.is_image):
            raise EnvError(f"a vector environment with {self.observation_space} is not supported; accepted is a Box")
        self.mode = vector.metadata.get("autoreset_mode", gym.vector.AutoresetMode.NEXT_STEP)
        self.episodes = EpisodeStatistics(range(count))

    def reset(self) -> np.ndarray:
        return self._start("vector")

    def restore(self, state: dict) -> dict[int, str]:
        """Only starts again: nothing is known of how a user's vector environment keeps its state."""
        self.steps = state["steps"]
        self._start("vector", self.steps)
        return {index: "a vector environment cannot be restored" for index in range(self.num_envs)}

    def _start(self, purpose: str, *index: int) -> np.ndarray:
        self.episodes.clear()
        observation, info = self._call("reset", seed=derive_seed(self.seed, purpose, *index))
        if "action_mask" in info:
            check_maskable(self.action_space)
            raise EnvError("action masks of a vector environment are not read; make single environments instead")
        self.observation = self._pack(observation)
        return self.observation

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        observation, reward, terminated, truncated, info = self._call("step", action)
        reward = np.asarray(reward, dtype=float)
        self.episodes.add(reward)
        done = terminated | truncated
        if not done.any():
            return Step(self._pack(observation), reward, terminated, truncated, None, [])
        final = np.array(observation)
        if self.mode == SAME_STEP:
            for index in np.flatnonzero(done):
                final[index] = info["final_obs"][index]
        else:  # reset now what would reset in the next step, or never
            observation, _ = self._call("reset", options={RESETTABLE: done})
        episodes = [self.episodes.finish(index) for index in np.flatnonzero(done).tolist()]
        return Step(self._pack(observation), reward, terminated, truncated, self._pack(final), episodes)

    def _call(self, name: str, *arguments: object, **options: object) -> tuple:
        try:
            return getattr(self.vector, name)(*arguments, **options)
        except (Exception, SystemExit) as error:
            what = f"raised {type(error).__name__} in {name}: {error}"
            raise EnvError(f"the vector environment {what} (its step {self.steps})") from error

    def close(self) -> None:
        self.vector.close()

    def _pack(self, observation: np.ndarray) -> np.ndarray:
        """A copy, because vector environments may write into their arrays again."""
        array = np.array(observation)
        return self.layout.images[0].channels_first(array) if self.layout.is_image else array
