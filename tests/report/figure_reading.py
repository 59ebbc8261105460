"""What tests look up in figures."""

from trmodel.report.style import star


def stars(axes):
    """Positions of the marks of chosen thresholds, in drawing order."""
    lines = [line for line in axes.lines if line.get_gid() == star()["gid"]]
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in lines]


def curves(axes):
    """The lines that show data over several points."""
    return [line for line in axes.lines if line.get_marker() == "o"]


def words(figure):
    """All the text of a figure in one string."""
    figure.draw_without_rendering()
    return "\n".join(
        [figure.get_suptitle()]
        + [
            text.get_text()
            for axes in figure.axes
            for text in axes.findobj(lambda artist: hasattr(artist, "get_text"))
        ]
    )
