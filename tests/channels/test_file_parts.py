"""Files as parts of a message, whoever brings them: what is taken, and what is said of the rest."""

from __future__ import annotations

import pytest

from nacre.channels.file_parts import file_part, image_part, text_part
from nacre.errors import NacreError

PNG = b"\x89PNG"


def test_an_image_is_a_data_url_and_a_text_has_its_name() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    assert file_part("sea/boat.png", PNG) == image_part("boat.png", "image/png", PNG) == image
    text = {"type": "text", "text": '<file name="log.txt">\nahoy\n</file>'}
    assert file_part("sea/log.txt", b"ahoy") == text_part("log.txt", "ahoy") == text


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("boat.png", b"", "'boat.png' is empty"),
        ("boat.png", bytes(10_000_001), "'boat.png' has more than 10,000,000 bytes"),
        ("log.txt", bytes(400_001), "'log.txt' has more than 400,000 bytes"),
        ("log.txt", b"\xff", "'log.txt' is neither text nor an image"),
    ],
)
def test_what_no_model_can_be_shown_is_refused(name: str, data: bytes, problem: str) -> None:
    with pytest.raises(NacreError, match=problem):
        file_part(name, data)


def test_an_image_of_another_kind_is_refused() -> None:
    with pytest.raises(NacreError, match=r"'boat\.tiff' cannot be attached"):
        image_part("boat.tiff", "image/tiff", PNG)
