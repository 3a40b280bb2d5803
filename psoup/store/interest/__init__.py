"""Interest: how far back the windows of registrations reach, by stream and predicate.

PSoup's WindowsTable. Servers and engine derive it from the state: the engine matches first if some
window can reach, and a server asks it to go further if somebody brings a longer window.
"""

from psoup.store.interest.interests import Interests
from psoup.store.interest.rows import RowFloors

__all__ = ["Interests", "RowFloors"]
