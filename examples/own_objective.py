"""An objective of your own: a function of the samples, to maximise, named by its import path.

    python examples/own_objective.py

Positional parameters are data (`ratio`, `advantage`, `kl`, … as docs/objectives.md lists them), keyword-only ones are
settings with a default. The command line takes it too: `spo train CartPole-v1 --objective own_objective:soft_clip`.
"""

import torch
from torch import Tensor

import spo


def soft_clip(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2) -> Tensor:
    """A·ε·tanh((r − 1)/ε): the slope of r·A at r = 1, and less and less of it beyond ε."""
    return advantage * epsilon * torch.tanh((ratio - 1) / epsilon)


def main(steps: str = "50k", out: str = "") -> spo.Run:
    objective = f"{__name__}:soft_clip"
    return spo.train("CartPole-v1", preset="classic", objective=objective, epsilon=0.3, steps=steps, out=out or None)


if __name__ == "__main__":
    run = main()
    print(f"return over the last tenth of the training: {run.summary['return']:.1f}")
