"""The native core, left out if it can't be compiled. Everything else is in pyproject.toml."""

from setuptools import Extension, setup

FOLDER = "datastem/native"
CORE = Extension(
    "datastem.native._core",
    sources=[f"{FOLDER}/{name}.c" for name in ("core", "pairs", "bitmaps", "fields", "search")],
    depends=[f"{FOLDER}/core.h"],
    # One file for every Python from 3.11 on.
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[CORE], options={"bdist_wheel": {"py_limited_api": "cp311"}})
