"""psoup copy encrypt, and the option --key-file of all commands of copies."""

from __future__ import annotations

from pathlib import Path

import click

from client_sdk import Copies
from client_sdk._key_file import read_key_file
from psoup.cli.copy_file import COPIES, KEY
from psoup.cli.output import note
from psoup.cli.problems import fail


def _read(context: click.Context, option: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    try:
        context.meta[KEY] = read_key_file(path)
    except (OSError, ValueError) as error:
        raise click.BadParameter(str(error), context, option) from None


def add_key_file(command: click.Command) -> None:
    """Give a command of copies the option --key-file, which `opened` reads."""
    option = click.Option(
        ["--key-file"],
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        envvar="PSOUP_COPY_KEY_FILE",
        show_envvar=True,
        expose_value=False,
        callback=_read,
        help="The key of an encrypted file: 32 bytes, or 64 hexadecimal digits. Needs pip install "
        "'psoup[encrypted]'.",
    )
    command.params.append(option)


@click.command()
@click.argument("file", type=COPIES)
@click.pass_context
def encrypt(context: click.Context, file: Path) -> None:
    """Encrypt the plain FILE with the key of --key-file. No other process may have it open.

    The disk may still have blocks of the plain file. A new file is encrypted from the beginning by
    psoup copy keep with --key-file.

    \b
    psoup copy encrypt phone.db --key-file phone.key
    """
    if KEY not in context.meta:
        fail("give --key-file: it names a file with the key")
    try:
        Copies.encrypt(file, context.meta[KEY])
    except (ValueError, ModuleNotFoundError) as error:
        fail(str(error))
    note(f"{file.name} is encrypted; keep the key, without it no row can be read")
