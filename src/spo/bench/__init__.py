"""Many runs: executed side by side, and told apart afterwards."""
