"""TLS of the web port: the server's certificate files, read again when they change."""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any

from cryptography import x509

from psoup.server.identity.settings import TlsFiles

log = logging.getLogger("psoup.server")


class WebCertificates:
    """The certificate, its key and the authorities of clients, for handshakes of the web port."""

    def __init__(self, files: TlsFiles) -> None:
        """Raise OSError or ValueError if the files can't be used."""
        self._files = files
        self._marks = self._look()
        self._current = self._read()
        self.context = self._read()
        self.context.sni_callback = self._renew
        # The names and addresses that the certificate is for, as hosts of URLs.
        self.names = self._read_names()

    def _read_names(self) -> list[str]:
        certificate = x509.load_pem_x509_certificates(self._files.cert.read_bytes())[0]
        try:
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return []
        addresses = map(str, extension.value.get_values_for_type(x509.IPAddress))
        return [
            *extension.value.get_values_for_type(x509.DNSName),
            *(f"[{address}]" if ":" in address else address for address in addresses),
        ]

    def _renew(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        """Give a connection the files as they are now. Unusable files leave it as it was."""
        try:
            marks = self._look()
            if marks != self._marks:
                # Also if the files turn out unusable: they are then reported once.
                self._marks = marks
                self._current, self.names = self._read(), self._read_names()
                log.info("the web port's certificate was read again from %s", self._files.cert)
        except (OSError, ValueError) as error:
            log.warning("the web port's certificate stays as it was: %s", error)
        connection.context = self._current

    def _look(self) -> list[tuple[int, int, int]]:
        paths = (self._files.cert, self._files.key, self._files.client_ca)
        stats = [os.stat(path) for path in paths if path is not None]
        return [(file.st_mtime_ns, file.st_size, file.st_ino) for file in stats]

    def _read(self) -> ssl.SSLContext:
        files = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(files.cert, files.key)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
