"""What may be asked for: the settings of a run, where they come from, and what each accepts."""
