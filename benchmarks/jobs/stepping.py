"""The simulation limit: the environments stepped alone, with the untrained policy's actions. No library trains."""

from spo import libraries

libraries.prepare()  # as for training

from jobs.job import ONE_BY_ONE, Job, Ready, run
from jobs.spo import settings, way_of_stepping
from spo.envs.making import EnvMaker
from spo.presets import make_config
from spo.training import Training


def prepare(job: Job) -> Ready:
    training = Training(make_config(job.env, **settings(job)), EnvMaker(job.env, {}))
    if job.backend == ONE_BY_ONE:
        training.envs.envs.task = None
    rollout = training.collector.collect()
    actions = [training.distribution.to_env(action.numpy()) for action in rollout.action]

    def step(iterations: int) -> None:
        for _ in range(iterations):
            for action in actions:
                training.envs.step(action)

    return Ready(step, *way_of_stepping(training))


if __name__ == "__main__":
    run("simple-policy-optimization", prepare)
