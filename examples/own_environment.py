"""An environment of your own: a Gymnasium class, trained on as it is.

    python examples/own_environment.py

Give actions bounds of ±1 and scale them inside, as here: a Gaussian policy starts with a standard deviation of 1.
A registered environment goes by its module too: `spo train own_environment:PointMass-v0 --preset classic`.
"""

import gymnasium as gym
import numpy as np

import spo


class PointMass(gym.Env):
    """Push a point to the origin of the plane; an episode is cut off, not ended, after 100 steps."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)  # self.np_random is the only randomness, so that a seed says everything
        self.position, self.velocity, self.steps = self.np_random.uniform(-1, 1, 2), np.zeros(2), 0
        return self._observe(), {}

    def step(self, action: np.ndarray):
        self.velocity = 0.9 * self.velocity + 0.1 * np.clip(action, -1, 1)
        self.position = self.position + 0.1 * self.velocity
        self.steps += 1
        reward = -float(np.linalg.norm(self.position))
        return self._observe(), reward, False, self.steps >= 100, {}

    def _observe(self) -> np.ndarray:
        return np.concatenate([self.position, self.velocity]).astype(np.float32)


gym.register("PointMass-v0", entry_point=f"{__name__}:PointMass")


def main(steps: str = "100k", out: str = "") -> spo.Run:
    return spo.train(PointMass, preset="classic", steps=steps, out=out or None)


if __name__ == "__main__":
    run = main()
    print(f"return over the last tenth of the training: {run.summary['return']:.1f}")
