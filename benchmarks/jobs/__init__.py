"""One module per library: the same training job, run by `python -m jobs.NAME JSON` in `benchmarks/`.

Some run in virtual environments of their own, so they import nothing of this project; only `spo` and `stepping` do.
"""
