"""One thread per test process: the suite runs in as many processes as there are cores."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)
