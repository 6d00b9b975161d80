"""The data that a matplotlib figure shows (contract: interpreter, section 5.3).

Key order and derivations are compared by clients; where a rule looks odd, it is the one they know.
"""

from .figure import figure_chart

__all__ = ["figure_chart"]
