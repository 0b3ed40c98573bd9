"""What acts: networks, distributions, normalisation, policies and their files."""

LARGEST_LAYER, MOST_LAYERS = 2**20, 1000
"""Of a network that a setting or a file may ask for."""
