"""Parts outside of PSoup that tests of sources start themselves."""
