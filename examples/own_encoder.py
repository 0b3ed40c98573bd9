"""A network of your own between observations and the actor and critic: a torch module that is made with a shape.

    python examples/own_encoder.py

The command line takes it too: `spo train CartPole-v1 --encoder own_encoder:Fourier`. A policy's file alone imports
nothing, so whoever loads it names the module again.
"""

import torch
from torch import Tensor, nn

import spo


class Fourier(nn.Module):
    """Waves of learned frequencies: features that let a small policy tell close states apart."""

    def __init__(self, shape: tuple[int, ...], features: int = 64):
        super().__init__()
        self.phases = nn.Linear(shape[0], features // 2)

    def forward(self, observation: Tensor) -> Tensor:
        phases = self.phases(observation)
        return torch.cat([phases.sin(), phases.cos()], dim=-1)


def main(steps: str = "50k", out: str = "") -> spo.Policy:
    encoder = f"{__name__}:Fourier"
    run = spo.train("CartPole-v1", preset="classic", encoder=encoder, steps=steps, out=out or None)
    return spo.load(run.directory, encoder=encoder)


if __name__ == "__main__":
    print(main())
