"""docs/reference/protocol.md tells a Go programmer where the generated code goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.go import install
from tests.support.docs.markdown import ROOT

GENERATOR = "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.5"


def _generate(path: str, into: Path, *options: str) -> None:
    protoc = [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto", f"--go_out={into}"]
    command = [*protoc, *options, "proto/psoup/v1/psoup.proto"]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": path}, check=True)


@pytest.mark.long
@pytest.mark.process
def test_go_code_is_generated_where_the_page_says(tmp_path: Path) -> None:
    path = install(tmp_path / "bin", GENERATOR)
    _generate(path, tmp_path)
    assert "package psoupv1\n" in (tmp_path / "psoup/v1/psoup.pb.go").read_text()
    _generate(path, tmp_path, "--go_opt=Mpsoup/v1/psoup.proto=your.module/psoupv1")
    assert "package psoupv1\n" in (tmp_path / "your.module/psoupv1/psoup.pb.go").read_text()
