"""CURVE keys: who may talk to the processes of one server over TCP.

All processes of a server share one key pair, made by ``trmodel keys`` and copied to each machine:
whoever has it is let in, nobody else.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from trmodel.documents import StrPath, json_text, read_json, shown
from trmodel.errors import InputError


@dataclass(frozen=True)
class Keys:
    """A key pair in the text form of ZeroMQ (Z85, 40 characters)."""

    public: str
    secret: str

    def secure(self, made: zmq.Socket[bytes], *, server: bool) -> None:
        """Give a socket the keys before it is bound or connected."""
        made.curve_publickey, made.curve_secretkey = self.public.encode(), self.secret.encode()
        if server:
            made.curve_server = True
        else:
            made.curve_serverkey = self.public.encode()


class _OnlyOurs:
    """Lets in who has the shared key pair."""

    def __init__(self, keys: Keys) -> None:
        self._public = keys.public.encode()

    def callback(self, domain: str, key: bytes) -> bool:
        return key == self._public


def guard(context: zmq.Context[Any], keys: Keys) -> ThreadAuthenticator:
    """Start to check the keys of whoever connects to the sockets of a context."""
    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve_callback("*", credentials_provider=_OnlyOurs(keys))
    return authenticator


def make_keys(path: StrPath) -> None:
    """Write a new key pair to a new file that only its owner may read.

    Raises
    ------
    InputError
        If it is there already or cannot be written.
    """
    public, secret = zmq.curve_keypair()
    document = {"schema": "trmodel/keys", "public": public.decode(), "secret": secret.decode()}
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot be made: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json_text(document) + "\n")


def load_keys(path: StrPath) -> Keys:
    """Read a key pair.

    Raises
    ------
    InputError
        If the file cannot be read or holds no keys.
    """
    data, _ = read_json(path)
    public, secret = data.get("public"), data.get("secret")
    for key in (public, secret):
        if not isinstance(key, str) or len(key) != 40 or data.get("schema") != "trmodel/keys":
            raise InputError(f"{shown(path)}: holds no keys; make some with 'trmodel keys'")
    return Keys(str(public), str(secret))
