"""This project: `ppo-clip`, with the threads and the backend that it chooses by itself."""

from spo.runtime import library_env

library_env.set_library_env()  # as the command line does

from jobs.job import ONE_BY_ONE, TOGETHER, Job, Ready, run
from lib.measure import make_trainer, speed
from spo.trainer import Trainer


def prepare(job: Job) -> Ready:
    training = make_trainer(job.env, **settings(job))
    step_as_asked(training, job)
    return Ready(lambda iterations: speed(training, iterations), *way_of_stepping(training))


def step_as_asked(training: Trainer, job: Job) -> None:
    """As other libraries step, if that is asked for."""
    if job.backend == ONE_BY_ONE:
        training.envs.envs.task = None


def way_of_stepping(training: Trainer) -> tuple[str, int]:
    if training.backend != "gymnasium":
        return training.backend, training.threads
    return TOGETHER if training.envs.can_use_threads else ONE_BY_ONE, training.envs.stepping_threads


def settings(job: Job) -> dict[str, object]:
    """The job in this project's words."""
    networks = {} if job.is_atari else {"hidden": job.hidden, "critic_hidden": job.critic_hidden}
    return networks | {
        "objective": "ppo-clip",
        "envs": job.envs,
        "horizon": job.horizon,
        "epochs": job.epochs,
        "minibatches": job.minibatches,
        "learning_rate": job.learning_rate,
        "lr_schedule": "constant",
        "gamma": job.gamma,
        "lam": job.lam,
        "epsilon": job.clip,
        "value_coef": job.value_coef,
        "entropy_coef": job.entropy_coef,
        "max_grad_norm": job.max_grad_norm,
        "threads": job.threads,
        "backend": "gymnasium" if job.backend in (ONE_BY_ONE, TOGETHER) else job.backend,
    }


if __name__ == "__main__":
    run("simple-policy-optimization", prepare)
