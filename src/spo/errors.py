"""The one exception that users meet."""


class Refusal(Exception):
    """Something that the project declines to do, told in one sentence that names the value and what is accepted."""
