"""Many runs: plans, sweeps, executors, results, statistics, figures and the report."""
