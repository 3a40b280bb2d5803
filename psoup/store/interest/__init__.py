"""Interest: how far back the windows of registrations reach, by stream and predicate.

It is PSoup's WindowsTable. Servers and engine derive it from the state: the engine matches first
the rows that a window can reach, and a server requests more if a caller brings a longer window.
"""

from psoup.store.interest.interests import Interests
from psoup.store.interest.rows import RowFloors

__all__ = ["Interests", "RowFloors"]
