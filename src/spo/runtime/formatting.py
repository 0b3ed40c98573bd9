"""Numbers and durations as people read them."""


def show(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def clock(seconds: float) -> str:
    """Seconds as 1:02:03 or 2:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
