"""What acts: networks, distributions, normalisation, policies and their files."""
