"""What the page of a run has: tables in Markdown, and by how much memory and descriptors have grown."""

import statistics


def slope(samples):
    """Per second, the median of the slopes between points (Theil and Sen), which steps and peaks do not move."""
    step = max(1, len(samples) // 150)
    points = samples[::step]
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :] if b[0] > a[0]
    ]
    return statistics.median(slopes) if slopes else 0.0


def growth(samples):
    """By how much the line that fits has grown between the first sample and the last, and the median."""
    return slope(samples) * (samples[-1][0] - samples[0][0]), statistics.median(value for _, value in samples)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def count(number):
    return "{:,}".format(number)


def spread(values):
    """Median and maximum of seconds."""
    if not values:
        return "–"
    return "%.1f s, at most %.1f s" % (statistics.median(values), max(values))
