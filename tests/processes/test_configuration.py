"""Options from a file and from the environment."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from psoup.configuration import BadConfiguration, keys_of, parse_configured, read_file, variable
from psoup.engine import process as engine_process
from psoup.server.options import make_parser
from psoup.web.settings import add_options


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))


def server(*arguments: str) -> argparse.Namespace:
    parser = make_parser()
    add_options(parser)
    return parse_configured(parser, "server", arguments)


def write(text: str, path: str = "psoup.toml") -> Path:
    file = Path(path)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)
    return file


def test_a_flag_wins_over_a_variable_and_that_over_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write('[server]\nstore = "s"\nmemory = "1GB"\nport = 7001\nwait = 2.5\n')
    options = server()
    assert (options.store, options.memory) == (Path("s"), 1 << 30)
    assert (options.port, options.wait, options.calls) == (7001, 2.5, 4000)
    monkeypatch.setenv("PSOUP_SERVER_MEMORY", "2GB")
    assert server().memory == 2 << 30
    assert server("--memory", "3GB").memory == 3 << 30


def test_groups_of_flags_have_tables_that_both_processes_read() -> None:
    write(
        '[metrics]\nmetrics = "127.0.0.1:9181"\n[engine]\nmetrics = "127.0.0.1:9182"\n'
        '[identity]\nauth = ["keys", "jwt"]\ninsecure = true\n[log]\nlog = "json"\n'
        '[web]\nweb = "127.0.0.1:7180"\nweb-host = ["a.example"]\n'
    )
    options = server("--store", "s")
    assert options.metrics == ("127.0.0.1", 9181) and options.auth == ["keys", "jwt"]
    assert options.insecure and options.log == "json"
    assert options.web == ("127.0.0.1", 7180) and options.web_host == ["a.example"]
    engine = parse_configured(engine_process.make_parser(), "engine", ["--store", "s"])
    assert engine.metrics == ("127.0.0.1", 9182) and engine.log == "json"


def test_a_file_that_is_named_wins_over_the_usual_places(monkeypatch: pytest.MonkeyPatch) -> None:
    write("[server]\nport = 1\n", "home/psoup.toml").rename(Path("home") / "moved")
    Path("home/psoup").mkdir()
    write("[server]\nport = 1\n", "home/psoup/psoup.toml")
    assert server("--store", "s").port == 1
    write("[server]\nport = 2\n")
    assert server("--store", "s").port == 2
    named = write("[server]\nport = 3\n", "other.toml")
    assert server("--store", "s", "--config", str(named)).port == 3
    monkeypatch.setenv("PSOUP_CONFIG", str(named))
    assert server("--store", "s").port == 3


def test_variables_of_lists_and_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PSOUP_IDENTITY_AUTH", "keys,certificates")
    monkeypatch.setenv("PSOUP_IDENTITY_INSECURE", "true")
    monkeypatch.setenv("PSOUP_LOG", "json")
    options = server("--store", "s")
    assert options.auth == ["keys", "certificates"] and options.insecure
    assert options.log == "json"
    monkeypatch.setenv("PSOUP_IDENTITY_INSECURE", "maybe")
    with pytest.raises(SystemExit):
        server("--store", "s")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server]\nmemry = '1GB'\n", "did you mean memory?"),
        ("[sever]\nmemory = '1GB'\n", "did you mean server?"),
        ("[server]\nmemory = 'much'\n", "[server] memory"),
        ("[server]\nmemory = true\n", "a text or a number"),
        ("[server]\nmemory = ['1GB']\n", "one value, not a list"),
        ("[server]\ndurability = 'some'\n", "not one of fsync, none"),
        ("[identity]\ninsecure = 'yes'\n", "true or false"),
        ("[identity]\nauth = ['magic']\n", "is not one of"),
        ("[server]\nport = x\n", "psoup.toml"),
        ("server = 5\n", "must be a table"),
        ("[server]\nhelp = true\n", "there is no such key"),
        ("[log]\nlog-levle = 'info'\n", "did you mean log-level?"),
        ("[identity]\nauht = ['keys']\n", "did you mean auth?"),
        ("[metrics]\nmetrics-token = 'file'\n", "did you mean metrics-token-file?"),
        ("[web]\nwebb = '127.0.0.1:7180'\n", "did you mean web?"),
    ],
)
def test_what_can_t_be_used_is_named_with_its_place(
    text: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(text)
    with pytest.raises(SystemExit) as ended:
        server("--store", "s")
    assert ended.value.code == 2
    message = " ".join(capsys.readouterr().err.split())
    assert problem in message and "psoup.toml" in message


def test_a_missing_file_that_was_named_is_an_error() -> None:
    with pytest.raises(BadConfiguration, match=r"nowhere.toml can't be read"):
        read_file(Path("nowhere.toml"))


def test_identity_must_not_be_in_a_file_that_others_may_change() -> None:
    file = write('[identity]\nauth = "keys"\n')
    file.chmod(0o622)
    with pytest.raises(BadConfiguration, match="chmod go-w"):
        read_file(file)
    write("[server]\nport = 1\n").chmod(0o622)
    assert read_file(file).tables == {"server": {"port": 1}}


def test_every_flag_has_its_own_variable() -> None:
    parser = make_parser()
    names = [variable(table or "server", key) for key, table, _ in keys_of(parser)]
    assert len(set(names)) == len(names)
    assert "PSOUP_SERVER_MEMORY" in names and "PSOUP_LOG" in names and "PSOUP_METRICS" in names
