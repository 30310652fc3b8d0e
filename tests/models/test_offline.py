"""While a model is loaded, nothing outside of this machine can be reached unless the user permits it."""

from __future__ import annotations

import os
import socket
import threading
import urllib.request
from pathlib import Path

import pytest

from opmark.errors import UserError
from opmark.models.offline import no_network


def test_a_download_is_refused_with_the_name_of_the_host() -> None:
    with pytest.raises(UserError, match=r"tries to reach models\.example") as caught, no_network():
        urllib.request.urlopen("https://models.example/weights.bin")
    assert "OPMARK_ALLOW_NETWORK=1" in (caught.value.hint or "")


def test_an_address_is_refused() -> None:
    with pytest.raises(UserError, match=r"192\.0\.2\.1"), no_network(), socket.socket() as one:
        one.connect(("192.0.2.1", 80))


def test_the_reason_is_said_where_the_model_hides_it() -> None:
    def load() -> None:
        try:
            urllib.request.urlopen("https://models.example/weights.bin")
        except UserError:
            raise RuntimeError("something is wrong") from None

    with pytest.raises(UserError, match=r"models\.example"), no_network():
        load()


def test_the_hub_is_told_to_stay_offline() -> None:
    class OfflineModeIsEnabled(Exception):
        pass

    with no_network():
        assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in os.environ
    with pytest.raises(UserError, match=r"huggingface\.co"), no_network():
        raise OSError("cannot be loaded") from OfflineModeIsEnabled()


def test_this_machine_can_be_reached(tmp_path: Path) -> None:
    with no_network():
        with socket.create_server(("127.0.0.1", 0)) as server:
            other = threading.Thread(target=lambda: server.accept()[0].close())
            other.start()
            socket.create_connection(("localhost", server.getsockname()[1]), timeout=10).close()
            other.join()
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(str(tmp_path / "s"))
            server.listen()
            client.connect(str(tmp_path / "s"))


def test_the_user_can_permit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_ALLOW_NETWORK", "1")
    before = socket.socket
    with no_network():
        assert socket.socket is before


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(ValueError, match="mine"), no_network():
        raise ValueError("mine")
