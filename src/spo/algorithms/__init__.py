"""What learns: batches, losses, optimisers, and the two rules that turn a batch into a better policy."""
