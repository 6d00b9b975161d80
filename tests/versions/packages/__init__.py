"""Packages on top of old releases, which know nothing but names. Each has a program here that uses it as its users do, and says on one line what
worked."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Package:
    """A package of PyPI in the release that was the newest when its program was written."""

    name: str
    release: str
    # What it needs to be installed beside it.
    beside: tuple[str, ...] = ()

    @property
    def program(self) -> Path:
        return HERE / f"{self.name.replace('-', '_')}.py"


PACKAGES = [
    Package("e2b-mcp-server", "0.1.1"),
    Package("arcade-e2b", "3.1.1"),
    Package("camel-ai", "0.2.90", ("e2b-code-interpreter<2",)),
]
