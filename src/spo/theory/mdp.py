"""Tabular Markov decision processes, solved by linear algebra in double precision: nothing here is sampled.

A policy is an array (..., S, A) of π(a|s); leading axes are many policies at once.
"""

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class MDP:
    """(r, P, ρ₀, γ) with reward (S, A), transition (S, A, S) and start (S,)."""

    reward: Array
    transition: Array
    start: Array
    gamma: float


def random_mdp(random: np.random.Generator, states: int, actions: int, gamma: float) -> MDP:
    """Normal rewards, and transitions that favour a few successors, so that a changed action changes what is seen."""
    transition = random.dirichlet(np.full(states, 0.3), (states, actions))
    return MDP(random.normal(size=(states, actions)), transition, random.dirichlet(np.ones(states)), gamma)


def random_policy(random: np.random.Generator, states: int, actions: int) -> Array:
    return random.dirichlet(np.ones(actions), states)


def nearby_policies(random: np.random.Generator, policy: Array, distances: Array) -> Array:
    """One policy per distance: the old log-probabilities plus normal noise of that size."""
    weight = policy * np.exp(distances[:, None, None] * random.normal(size=(len(distances), *policy.shape)))
    return weight / weight.sum(-1, keepdims=True)


def state_transitions(mdp: MDP, policy: Array) -> Array:
    """P_π (..., S, S): from which state to which."""
    return np.einsum("...sa,sat->...st", policy, mdp.transition)


def state_values(mdp: MDP, policy: Array) -> Array:
    """V_π = (I − γ·P_π)⁻¹ r_π."""
    system = np.eye(len(mdp.start)) - mdp.gamma * state_transitions(mdp, policy)
    return np.linalg.solve(system, (policy * mdp.reward).sum(-1)[..., None])[..., 0]


def performance(mdp: MDP, policy: Array) -> Array:
    """η(π): the expected discounted return from the start."""
    return state_values(mdp, policy) @ mdp.start


def advantages(mdp: MDP, policy: Array) -> Array:
    """A_π(s, a) = Q_π(s, a) − V_π(s)."""
    value = state_values(mdp, policy)
    return mdp.reward + mdp.gamma * mdp.transition @ value - value[:, None]


def visitation(mdp: MDP, policy: Array) -> Array:
    """ρ_π (..., S), normalised: ρ_π = (1 − γ)·ρ₀ + γ·P_πᵀ ρ_π."""
    system = np.eye(len(mdp.start)) - mdp.gamma * np.swapaxes(state_transitions(mdp, policy), -1, -2)
    start = np.broadcast_to(mdp.start[:, None], (*system.shape[:-1], 1))
    return (1 - mdp.gamma) * np.linalg.solve(system, start)[..., 0]


def worst_case_mdp(
    gamma: float, chance: float, shift: float, tilts: tuple[float, float], size: float
) -> tuple[MDP, Array, Array]:
    """The worst case for the lower bounds: an MDP, an old and a new policy, after which hardly any slack is left.

    State 0 chooses once between two states that are never left, the first with probability `chance`. In each of them
    two actions pay ±size/(2·tilt) and the old policy takes either; the new one tilts by `tilt`, to the better action in
    the first state and to the worse in the second, so that its advantage is ±size there. Its choice in state 0 moves by
    `shift` to the second state: the old policy's data promise what the new policy will not see. Powers of two make
    every number exact.
    """
    pay = size / (2 * np.array(tilts))
    reward = np.array([[0, 0], [pay[0], -pay[0]], [pay[1], -pay[1]]])
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 2] = transition[1, :, 1] = transition[2, :, 2] = 1
    old = np.array([[chance, 1 - chance], [0.5, 0.5], [0.5, 0.5]])
    move = np.array([[-shift, shift], [tilts[0], -tilts[0]], [-tilts[1], tilts[1]]])
    return MDP(reward, transition, np.array([1.0, 0.0, 0.0]), gamma), old, old + move
