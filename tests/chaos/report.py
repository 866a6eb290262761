"""The page that a run leaves: tables in Markdown, and memory and descriptors over time as an SVG."""

import statistics

COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b")
WIDTH, HEIGHT, LEFT, TOP, GAP = 900, 170, 60, 24, 46


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


def svg(usage, faults, seconds):
    """usage: {server: [[(time, bytes, descriptors), ...] of each process]}; faults: [(time, name)]."""
    names = list(usage)
    height = TOP + 2 * (HEIGHT + GAP) + 18
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">'
        % (WIDTH + LEFT + 20, height),
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    x = lambda time: LEFT + WIDTH * time / max(seconds, 1)  # noqa: E731
    for panel, (title, column, unit) in enumerate((("resident memory, MiB", 1, 2**20), ("descriptors", 2, 1))):
        top = TOP + panel * (HEIGHT + GAP)
        values = [sample[column] / unit for server in names for process in usage[server] for sample in process]
        most = _round_up(max(values, default=1) * 1.05)
        y = lambda value: top + HEIGHT * (1 - value / most)  # noqa: E731
        out.append('<text x="%d" y="%d" font-weight="bold">%s</text>' % (LEFT, top - 8, title))
        for tick in range(5):
            value = most * tick / 4
            out.append('<path d="M%d %.1fh%d" stroke="#ddd"/>' % (LEFT, y(value), WIDTH))
            out.append('<text x="%d" y="%.1f" text-anchor="end">%g</text>' % (LEFT - 6, y(value) + 4, value))
        for time, name in faults:
            line = '<path d="M%.1f %dv%d" stroke="#bbb" stroke-dasharray="2 3"><title>%s</title></path>'
            out.append(line % (x(time), top, HEIGHT, name))
        for number, server in enumerate(names):
            for process in usage[server]:
                step = max(1, len(process) // 400)
                points = process[::step]
                path = "L".join("%d %d" % (x(one[0]), y(one[column] / unit)) for one in points)
                color = COLORS[number % len(COLORS)]
                out.append('<path d="M%s" fill="none" stroke="%s" stroke-width="1.5"/>' % (path, color))
    base = TOP + 2 * HEIGHT + GAP + 16
    for tick in range(7):
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%.1f min</text>' % (x(seconds * tick / 6), base, seconds * tick / 360))
    for number, server in enumerate(names):
        left = LEFT + number * 130
        out.append('<path d="M%d %dh18" stroke="%s" stroke-width="3"/>' % (left, base + 18, COLORS[number % len(COLORS)]))
        out.append('<text x="%d" y="%d">%s</text>' % (left + 24, base + 22, server))
    return "\n".join(out) + "\n</svg>\n"


def _round_up(value):
    scale = 1
    while scale * 10 < value:
        scale *= 10
    return next(scale * step for step in (1, 2, 4, 6, 8, 10) if scale * step >= value)


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
