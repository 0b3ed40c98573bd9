"""Running normalisation of observations and rewards, shared by all environments or kept for each.

Constants are the authors': count from 1e-4, variance from 1, eps 1e-8, clipped to ±10. Statistics are updated at
every step before use. Observations are centred and scaled; rewards are divided by the standard deviation of the
discounted return and not centred.
"""

import numpy as np

EPSILON = 1e-8
CLIP = 10.0


class RunningMoments:
    """Mean and variance over a stream, in G groups of their own: arrays (G, *shape)."""

    def __init__(self, groups: int, shape: tuple[int, ...] = ()):
        self.mean = np.zeros((groups, *shape))
        self.variance = np.ones((groups, *shape))
        self.count = np.full((groups,) + (1,) * len(shape), 1e-4)

    def update(self, sample: np.ndarray, groups: slice | np.ndarray = slice(None)) -> None:
        """Add a sample (G, B, *shape) to the chosen groups.

        Squares are summed around the old mean and then moved to the new one, which takes the fewest operations.
        """
        mean = self.mean[groups]
        count = self.count.item() if self.count.size == 1 else self.count[groups]  # a number costs less than an array
        total = count + sample.shape[1]
        deviation = sample - mean[:, None]
        deviations = np.add.reduce(deviation, axis=1)
        shift = deviations / total
        squares = np.add.reduce(deviation * deviation, axis=1) - deviations * shift
        self.mean[groups] = mean + shift
        self.variance[groups] = (self.variance[groups] * count + squares) / total
        self.count[groups] = total

    def update_in_turn(self, samples: np.ndarray) -> np.ndarray:
        """Add T samples (T, G, B) of single numbers one after the other; return the variances after each (T, G)."""
        counts = self.count + samples.shape[2] * np.arange(1, len(samples) + 1)[:, None]
        centre = samples.mean(axis=(0, 2))  # around which all squares are summed: near all of them, so nothing is lost
        offset, deviation = self.mean - centre, samples - centre[:, None]
        sums = self.count * offset + deviation.sum(axis=2).cumsum(axis=0)
        squares = self.count * (self.variance + offset * offset) + (deviation * deviation).sum(axis=2).cumsum(axis=0)
        means = sums / counts
        variances = squares / counts - means * means
        self.mean, self.variance, self.count = centre + means[-1], variances[-1].copy(), counts[-1].copy()
        return variances

    def state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name).copy() for name in ("mean", "variance", "count")}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        for name, array in state.items():
            getattr(self, name)[...] = array

    def merge_groups(self) -> "RunningMoments":
        """The moments of all groups taken together, as one group."""
        merged = RunningMoments(1, self.mean.shape[1:])
        weight = self.count / self.count.sum(axis=0)
        merged.mean = (weight * self.mean).sum(axis=0, keepdims=True)
        spread = self.variance + np.square(self.mean - merged.mean)
        merged.variance = (weight * spread).sum(axis=0, keepdims=True)
        merged.count = self.count.sum(axis=0, keepdims=True)
        return merged


def _group(sample: np.ndarray, mode: str) -> np.ndarray:
    """(N, …) as one group of N samples, or as N groups of one sample."""
    return sample[None] if mode == "shared" else sample[:, None]


def _clip(array: np.ndarray) -> np.ndarray:
    """In place and in two plain operations: np.clip costs several times as much on small arrays."""
    return np.minimum(np.maximum(array, -CLIP, out=array), CLIP, out=array)


class ObservationNormalizer:
    """(observation − mean) / √(variance + 1e-8), clipped to ±10, as float32.

    Of a longer vector only the first `continuous_size` entries are normalised. What is not normalised at all gets the
    network's type: bytes for an image of them, even if what came is of another kind of whole numbers, or flags.
    """

    def __init__(self, mode: str, envs: int, continuous_size: int, dtype: np.dtype | type = np.float32):
        self.mode, self.continuous_size, self.dtype = mode if continuous_size else "off", continuous_size, dtype
        self.moments = RunningMoments(1 if mode == "shared" else envs, (continuous_size,))

    @property
    def switch(self) -> str:
        return "off" if self.mode == "off" else "on"

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Normalise (N, …) without touching the statistics."""
        if self.mode == "off":
            return observation.astype(np.float32 if observation.dtype.kind == "f" else self.dtype, copy=False)
        centred = observation[:, : self.continuous_size] - self.moments.mean
        scaled = centred * (1 / np.sqrt(self.moments.variance + EPSILON))  # many products cost less than many quotients
        normalized = _clip(scaled.astype(np.float32))
        if observation.shape[1] == self.continuous_size:
            return normalized
        return np.concatenate([normalized, observation[:, self.continuous_size :]], axis=1, dtype=np.float32)

    def update(self, observation: np.ndarray, envs: np.ndarray | None = None) -> None:
        """Count the observations of all environments, or of those chosen by a boolean mask (N,)."""
        if self.mode == "off":
            return
        observation = observation[:, : self.continuous_size]
        if envs is None:
            self.moments.update(_group(observation, self.mode))
        elif self.mode == "shared":
            self.moments.update(observation[envs][None])
        else:
            self.moments.update(observation[envs][:, None], envs)

    def start_from(self, other: "ObservationNormalizer") -> None:
        """Take over the statistics of a frozen normaliser; each group gets its share of the weight."""
        if "off" in (self.mode, other.mode):
            return
        source, target = other.moments, self.moments
        target.mean[:], target.variance[:] = source.mean, source.variance
        target.count[:] = source.count / len(target.count)

    def freeze(self) -> "ObservationNormalizer":
        """A copy for evaluation with one set of statistics for every environment."""
        frozen = ObservationNormalizer("off" if self.mode == "off" else "shared", 1, self.continuous_size, self.dtype)
        frozen.moments = self.moments.merge_groups()
        return frozen


class RewardNormalizer:
    """reward / √(variance of the discounted return + 1e-8), clipped to ±10.

    By default the return R ← γ·R + r starts again after every episode end. The authors' wrapper drops the past *at*
    a terminal step, R ← γ·R·(1 − terminated) + r, and goes on across truncations: `reset_on="termination"`.
    """

    def __init__(self, mode: str, envs: int, gamma: float, reset_on: str = "end"):
        self.mode, self.gamma, self.reset_on = mode, gamma, reset_on
        self.moments = RunningMoments(1 if mode == "shared" else envs)
        self.discounted_return = np.zeros(envs)

    def __call__(self, reward: np.ndarray, terminated: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Count a rollout's rewards (T, N) step by step and return each normalised by what was known then.

        Acting does not need them, and a rollout at once costs a fraction of its single steps.
        """
        if self.mode == "off":
            return reward
        returns = self._discount(reward, terminated, done)
        variances = self.moments.update_in_turn(returns[:, None] if self.mode == "shared" else returns[:, :, None])
        return _clip(reward / np.sqrt(variances + EPSILON))

    def _discount(self, reward: np.ndarray, terminated: np.ndarray, done: np.ndarray) -> np.ndarray:
        """The discounted return after every step (T, N)."""
        returns, running = np.empty(reward.shape), self.discounted_return
        is_cut = self.reset_on == "termination"
        for t in range(len(reward)):
            past = running * self.gamma
            running = returns[t] = (past * ~terminated[t] if is_cut else past) + reward[t]
            if not is_cut:
                running = running * ~done[t]
        self.discounted_return[:] = running
        return returns

    def state(self) -> dict[str, object]:
        return {"moments": self.moments.state(), "discounted_return": self.discounted_return.copy()}

    def restore(self, state: dict) -> None:
        self.moments.restore(state["moments"])
        self.discounted_return[:] = state["discounted_return"]
