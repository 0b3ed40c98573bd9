"""The logged statistics of an update, each defined in docs/metrics.md."""

import torch
from torch import Tensor

from spo.errors import DivergenceError
from spo.models.distributions import Distribution
from spo.rollout import EpisodeRow, Rollout

Row = dict[str, float]
LARGEST_LOGGED_LOG_RATIO = 80.0
POLICY_STATISTICS = (
    "policy_loss",
    "value_loss",
    "entropy",
    "ratio_deviation",
    "ratio_deviation_max",
    "ratio_deviation_sample_max",
    "clip_fraction",
    "zero_gradient_fraction",
    "rollback_fraction",
)
Stats = dict[str, Tensor]


def ratio_statistics(log_ratio: Tensor, bound: float | Tensor) -> Stats:
    """How far the ratios have left 1, from log-ratios capped only so that JSON stays finite."""
    deviation = (log_ratio.detach().clamp(max=LARGEST_LOGGED_LOG_RATIO).exp() - 1).abs()
    mean = deviation.mean()
    return {
        "ratio_deviation": mean,
        "ratio_deviation_max": mean,
        "ratio_deviation_sample_max": deviation.max(),
        "clip_fraction": (deviation > bound).float().mean(),
    }


def sample_statistics(log_ratio: Tensor, advantage: Tensor, sample_gradient: Tensor) -> Tensor:
    """Give each sample's ratio, its advantage, and whether the objective leaves it alone (3, samples)."""
    ratio = log_ratio.detach().clamp(max=LARGEST_LOGGED_LOG_RATIO).exp()
    return torch.stack([ratio, advantage.detach(), (sample_gradient == 0).to(ratio.dtype)])


def gradient_statistics(sample_gradient: Tensor, advantage: Tensor) -> Stats:
    """Which samples the objective leaves alone, and which it pulls back against their advantage."""
    return {
        "zero_gradient_fraction": (sample_gradient == 0).float().mean(),
        "rollback_fraction": (sample_gradient * advantage < 0).float().mean(),
    }


def summarize_minibatches(names: tuple[str, ...], rows: Tensor) -> dict[str, float]:
    """Means over the minibatches (M, statistics), maxima of those whose name says so."""
    if not torch.isfinite(rows).all():
        raise _divergence_error(names, rows)
    means, maxima = rows.mean(0).tolist(), rows.amax(0).tolist()
    return {name: maxima[i] if name.endswith("_max") else means[i] for i, name in enumerate(names)}


def _divergence_error(names: tuple[str, ...], rows: Tensor) -> DivergenceError:
    """Name the first statistic that is not finite; the parameters are still those before that step."""
    step, column = (~torch.isfinite(rows)).nonzero()[0].tolist()
    name, value = names[column].replace("_", " "), rows[step, column].item()
    return DivergenceError(f"training diverged: the {name} became {value} at minibatch {step + 1} of the iteration")


def episode_statistics(episodes: list[EpisodeRow]) -> Row:
    """How many episodes ended in an iteration, and the means of their returns and lengths, if any did."""
    if not episodes:
        return {"episodes": 0}
    count = len(episodes)
    total_reward, length = (sum(column) for column in zip(*((one.total_reward, one.length) for one in episodes)))
    return {"episodes": count, "return_mean": total_reward / count, "length_mean": length / count}


def action_statistics(distribution: Distribution, rollout: Rollout) -> Row:
    """Box actions: the share of components clipped to their bounds, and the mean standard deviation, if any."""
    if not distribution.is_continuous:
        return {}
    row = {"clipped_action_fraction": distribution.clipped_fraction(rollout.action.numpy())}
    if not distribution.has_log_std:
        return row
    log_std = rollout.dist_params[..., distribution.outputs :].clamp(max=LARGEST_LOGGED_LOG_RATIO)
    return row | {"action_std": log_std.exp().mean().item()}


def explained_variance(value: Tensor, target: Tensor) -> float:
    """1 − Var(target − value) / Var(target): 1 is perfect, 0 no better than a constant (or nothing to explain)."""
    variance = target.var().item()
    return 1 - (target - value).var().item() / variance if variance > 0 else 0.0
