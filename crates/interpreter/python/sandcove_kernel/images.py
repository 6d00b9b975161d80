"""Displays pictures that code saves or shows with PIL (contract: interpreter, 5.2)."""

import functools
import sys


def install() -> None:
    """Wraps ``PIL.Image.Image.save`` and ``show``, if PIL is there."""
    image_module = sys.modules.get("PIL.Image")
    if image_module is None:
        return
    image = image_module.Image
    original = image.save

    @functools.wraps(original)
    def save(self, fp, format=None, **options):
        original(self, fp, format, **options)
        if isinstance(fp, str):
            _display(self)

    def show(self, title=None):
        """Displays the picture; there is no viewer to open."""
        _display(self)

    image.save = save
    image.show = show


def _display(image) -> None:
    from IPython.display import display

    display(image)
