"""The page that tells what a sweep came to."""
