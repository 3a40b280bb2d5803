"""Python imports this at the start of each process whose PYTHONPATH leads here."""

from tests.power.recorder import install

install()
