"""PSoup: a result store for clients that are usually not connected."""

from psoup._own_packages import check_own_packages

check_own_packages()
