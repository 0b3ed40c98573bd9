"""The live view of runs: a reader that follows run directories as they are written, a web server and a terminal table.

Nothing here imports torch, writes into a run, takes its lock, or keeps one of its files open.
"""
