"""Where back-ups are: a folder, or a prefix of a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from psoup.store.backup.address import BucketAddress
from psoup.store.backup.folder import locked_folder, read_folder
from psoup.store.backup.generations import Generation, Target
from psoup.store.errors import BackupFailed

Place = Path | BucketAddress


def locked_target(place: Place, root: Path, store: str) -> AbstractContextManager[Target]:
    """Open a target for back-ups of the store in the folder `root`, and keep other back-ups out of
    it. Raise BackupFailed."""
    if isinstance(place, BucketAddress):
        # obstore is an extra.
        from psoup.store.backup.objects import leased_bucket

        return leased_bucket(place, store)
    folder = place.absolute()
    if folder.resolve().is_relative_to(root.resolve()):
        raise BackupFailed("the target is inside of the store; choose another folder")
    return locked_folder(folder, store)


@contextmanager
def read_target(place: Place) -> Iterator[list[Generation]]:
    """Open a target and return its back-ups, oldest first. Raise BackupFailed."""
    if isinstance(place, BucketAddress):
        from psoup.store.backup.objects import read_bucket

        yield read_bucket(place)
        return
    with read_folder(place.absolute()) as generations:
        yield generations
