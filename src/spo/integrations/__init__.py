"""The objectives inside other libraries: a module for each host, imported by its users alone.

Importing this package imports no host. `rewriting` puts an objective where a host computes PPO's, `objective` is what
is put there, `hosts` is the table of what is supported.
"""
