"""The live view of runs: a reader that follows run directories as they are written, a web server and a terminal table.

Nothing here imports torch, writes into a run, takes its lock, or keeps one of its files open.

The rooms, from the disk up:

- files, lines: what is opened, and how far it is read
- tables, history, samples, videos: one run's logs, kept ratios and recordings, in bounded memory
- glance, catalogue: all runs, each at a glance
- curves, fans: what many rows or many samples come to
- words: numbers and names as people read them
- text: the terminal
- plots, clouds, page, pages/, assets/: the browser, a page a file
- guard, server, command: who may look, and the command
"""
