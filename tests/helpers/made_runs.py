"""Runs made of files alone, with numbers that follow from a formula: for whatever watches runs."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

BATCH, EPOCHS, SAMPLES = 1000, 4, 200
SETTINGS = {"preset": "mujoco", "steps": 100_000, "learning_rate": 3e-4, "hidden": [64, 64], "out": "x", "quiet": True}


def write_config(
    path: Path, env: str = "Hill-v0", objective: str = "spo", seed: int = 1, iterations: int = 100, **other
):
    path.mkdir(parents=True, exist_ok=True)
    settings = SETTINGS | {"env": env, "objective": objective, "seed": seed} | other
    resolved = {"total_steps": iterations * BATCH, "iterations": iterations, "objective_settings": {"epsilon": 0.2}}
    (path / "config.json").write_text(json.dumps({"settings": settings, "resolved": resolved}))


def write_status(path: Path, state: str, iteration: int, reason: str | None = None) -> None:
    values = {"state": state, "reason": reason, "iteration": iteration, "env_steps": iteration * BATCH}
    temporary = path / "status.json.tmp"
    temporary.write_text(json.dumps(values | {"checkpoint": 0, "exact": True}))
    temporary.replace(path / "status.json")


def metrics_row(iteration: int, objective: str = "spo") -> dict[str, float]:
    deviation = 0.05 + (0.004 * iteration if objective == "ppo-clip" else 0.0)
    return {
        "iteration": iteration,
        "env_steps": iteration * BATCH,
        "wall_time": 0.5 * iteration,
        "steps_per_second": 2000.0 + iteration % 7,
        "learning_rate": 3e-4 * (1 - iteration / 6000),
        "policy_loss": -0.01,
        "value_loss": 1 / iteration,
        "entropy": 3 - 0.001 * iteration,
        "explained_variance": 1 - 1 / iteration,
        "grad_norm": 0.5,
        "ratio_deviation": deviation,
        "ratio_deviation_max": 1.5 * deviation,
        "ratio_deviation_run_max": 1.5 * deviation,
        "ratio_deviation_sample_max": 4 * deviation,
        "clip_fraction": min(1.0, deviation),
        "zero_gradient_fraction": deviation / 2 if objective == "ppo-clip" else 0.0,
        "rollback_fraction": 0.0 if objective == "ppo-clip" else deviation / 2,
        "epochs": 10,
        "kl": deviation**2,
        "kl_max": 4 * deviation**2,
        "kl_reverse": deviation**2,
        "kl_reverse_max": 4 * deviation**2,
        "tv": deviation / 2,
    }


def append_rows(path: Path, first: int, last: int, objective: str = "spo", episodes: int = 4) -> None:
    """Write iterations from the first to the last as training does: episodes, then metrics."""
    with (path / "episodes.jsonl").open("a") as file:
        for iteration in range(first, last + 1):
            for number in range(episodes):
                ended = iteration * BATCH - (episodes - 1 - number) * (BATCH // max(episodes, 1))
                file.write(
                    json.dumps({"env": number, "return": float(iteration + number), "length": 20, "env_steps": ended})
                    + "\n"
                )
    with (path / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(metrics_row(iteration, objective)) + "\n" for iteration in range(first, last + 1))


def cloud(iteration: int, objective: str, epochs: int = EPOCHS, samples: int = SAMPLES) -> dict[str, np.ndarray]:
    """Ratios that stay within ε under SPO, and leave it under PPO-Clip, where they then have no gradient."""
    generator = np.random.default_rng(iteration)
    advantage = generator.normal(size=samples).astype(np.float32)
    noise = generator.normal(size=samples)
    growth = np.arange(epochs)[:, None] / max(epochs - 1, 1)
    width = 0.07 if objective == "spo" else 0.1 + 0.012 * iteration
    ratio = np.exp(growth * (width * noise + 0.4 * width * np.sign(advantage)))
    if objective == "spo":
        ratio = 1 + 0.19 * np.tanh((ratio - 1) / 0.19)
    is_alone = ((ratio > 1.2) & (advantage > 0)) | ((ratio < 0.8) & (advantage < 0))
    return {
        "ratio": ratio.astype(np.float32),
        "advantage": np.broadcast_to(advantage, ratio.shape).copy(),
        "zero_gradient": (is_alone & (objective != "spo")).astype(np.uint8),
        "epsilon": np.array([0.2], dtype=np.float32),
    }


def write_cloud(path: Path, iteration: int, objective: str) -> None:
    folder = path / "ratio_samples"
    folder.mkdir(exist_ok=True)
    (folder / f"{iteration}.safetensors").write_bytes(save(cloud(iteration, objective)))


def write_run(
    path: Path, state: str = "finished", made: int = 100, reason: str | None = None, episodes: int = 4, **config
) -> Path:
    """Write a whole run, or the first so many iterations of one."""
    write_config(path, **config)
    append_rows(path, 1, made, config.get("objective", "spo"), episodes)
    write_status(path, state, made, reason)
    return path


def write_sweep(path: Path, made: int = 100, seeds: int = 2, tasks: tuple[str, ...] = ("Hill-v0",)) -> Path:
    """Write a sweep of two variants whose runs are all finished."""
    variants = {"ppo": {"label": "PPO", "objective": "ppo-clip"}, "spo": {"label": "SPO", "objective": "spo"}}
    path.mkdir(parents=True)
    plan = {"suite": "fixture", "title": "A fixture", "tasks": list(tasks), "variants": variants, "seeds": seeds}
    (path / "plan.json").write_text(json.dumps(plan))
    for task in tasks:
        for name, variant in variants.items():
            for seed in range(1, seeds + 1):
                place = path / "runs" / task / name / str(seed)
                write_run(place, made=made, env=task, objective=variant["objective"], seed=seed)
    return path
