"""Every random draw of a run comes from a generator named here, derived from the run's seed by its purpose."""

import zlib

import numpy as np


def _sequence(seed: int, purpose: str, *index: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *index])


def generator(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """A generator of its own for each purpose, so that (say) evaluation cannot disturb training."""
    return np.random.default_rng(_sequence(seed, purpose, *index))


def derive_seed(seed: int, purpose: str, *index: int) -> int:
    """A seed for a library that wants an integer: 32 bits, because many environments accept no more."""
    return int(_sequence(seed, purpose, *index).generate_state(1)[0])


def episode_seed(seed: int, env: int, episode: int) -> int:
    """Each episode has a seed of its own, hashed so that runs with neighbouring seeds share no stream."""
    return derive_seed(seed, "episode", env, episode)
