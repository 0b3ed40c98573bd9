"""The simulation limit: what a training does with its environments, done again by itself, with nothing in between.

The very same steps, because steps differ: on Humanoid-v4 those of a policy that has begun to learn take a third longer
than those of an untrained one, which falls at once and starts again in the air.
"""

from spo.runtime import library_env

library_env.set_library_env()  # as for training

from jobs.job import Job, Ready, run
from jobs.spo import settings, step_as_asked, way_of_stepping
from spo.config.sources import make_config
from spo.envs.make import EnvMaker
from spo.trainer import Trainer


def prepare(job: Job) -> Ready:
    config = make_config(job.env, steps=10**7, **settings(job))
    leader, follower = (Trainer(config, EnvMaker(job.env, {})) for _ in range(2))
    leader.choose_update_path()
    step_as_asked(follower, job)
    made, step = [], leader.envs.step

    def noted(action):
        made.append(action)
        return step(action)

    def lead(iterations: int) -> None:
        made.clear()
        for _ in range(iterations):
            leader.iterate()

    def follow(iterations: int) -> None:
        for action in made:
            follower.envs.step(action)

    leader.envs.step = noted
    return Ready(follow, *way_of_stepping(follower), before=lead)


if __name__ == "__main__":
    run("simple-policy-optimization", prepare)
