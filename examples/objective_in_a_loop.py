"""The objective alone, in a loop that you wrote: fifty batches of a bandit whose context names the best of four arms.

    python examples/objective_in_a_loop.py

`spo.objectives.evaluate` forms the ratio so that it cannot overflow, and refuses data of unequal shapes. Where neither
can happen, `spo.objectives.spo(ratio, advantage, epsilon=0.2)` is the same formula without guards.
"""

import torch
from torch import nn
from torch.distributions import Categorical

from spo import objectives

ARMS, BATCH, EPOCHS = 4, 256, 4


def main(batches: int = 50, objective: str = "spo") -> float:
    """The mean reward of the last batch; 0.25 is chance."""
    torch.manual_seed(0)
    policy = nn.Linear(ARMS, ARMS)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    for _ in range(batches):
        best = torch.randint(ARMS, (BATCH,))
        context = nn.functional.one_hot(best, ARMS).float()
        with torch.no_grad():
            old = Categorical(logits=policy(context))
            action = old.sample()
        reward = (action == best).float()
        advantage = (reward - reward.mean()) / (reward.std() + 1e-8)
        for _ in range(EPOCHS):
            log_ratio = Categorical(logits=policy(context)).log_prob(action) - old.log_prob(action)
            loss = -objectives.evaluate(objective, log_ratio, advantage, epsilon=0.2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return reward.mean().item()


if __name__ == "__main__":
    print(f"mean reward {main():.2f}")
