"""Sweeps: plans, executors, results, statistics, figures, the report, and the search for settings."""
