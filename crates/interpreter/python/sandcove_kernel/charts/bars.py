"""Bar charts, histograms among them."""

from .labels import labels_of, tick_labels, title_of, without_prefix


def bar_chart(axes) -> dict:
    elements, swapped = [], False
    for container in axes.containers:
        group = without_prefix(container.get_label(), "_container", "Group")
        heights = [bar.get_height() for bar in container]
        if all(height == heights[0] for height in heights):
            # Bars of equal height lie on their side.
            swapped = not swapped
            labels, values = tick_labels(axes.get_yticklabels()), [bar.get_width() for bar in container]
        else:
            labels, values = tick_labels(axes.get_xticklabels()), heights
        elements += [
            {"label": label, "group": group, "value": float(value)} for label, value in zip(labels, values)
        ]
    return {"type": "bar", "title": title_of(axes), "elements": elements, **labels_of(axes, swapped=swapped)}
