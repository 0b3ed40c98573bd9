"""What the scripts of `benchmarks/` share; they are run from there, and so find it as `lib`."""
