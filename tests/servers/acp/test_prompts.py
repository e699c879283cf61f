"""What an editor attaches to a prompt: the same as --attach, with the same errors."""

from __future__ import annotations

from typing import Any

import pytest
from acp import RequestError, schema

from nacre.servers.acp_params import read_prompt


def image(data: str, kind: str = "image/png", uri: str | None = None) -> Any:
    return schema.ImageContentBlock(type="image", mime_type=kind, data=data, uri=uri)


def file(uri: str, text: str) -> Any:
    resource = schema.TextResourceContents(uri=uri, text=text)
    return schema.EmbeddedResourceContentBlock(type="resource", resource=resource)


def test_a_file_is_named_by_its_path_and_an_image_is_a_data_url() -> None:
    found = read_prompt([file("file:///sea/the%20log.txt", "ahoy"), image("iVBORw==")])
    assert found == [
        {"type": "text", "text": '<file name="/sea/the log.txt">\nahoy\n</file>'},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
    ]


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (image(""), "'image/png' is empty"),
        (image("?"), "must be base64"),
        (image("iVBORw==", "image/tiff", "file:///boat.tiff"), "'/boat.tiff' cannot be attached"),
        (image("AAAA" * 3_333_334), "'image/png' has more than 10,000,000 bytes"),
        (file("file:///log.txt", "x" * 400_001), "'/log.txt' has more than 400,000 bytes"),
        (schema.AudioContentBlock(type="audio", mime_type="audio/wav", data=""), "no audio"),
    ],
)
def test_what_cannot_be_attached_is_refused_with_a_sentence(block: Any, problem: str) -> None:
    with pytest.raises(RequestError, match=problem) as refused:
        read_prompt([block])
    assert refused.value.code == -32602


def test_an_address_that_cannot_be_parsed_is_named_as_it_is() -> None:
    link = schema.ResourceContentBlock(type="resource_link", name="x", uri="http://[sea")
    assert read_prompt([link]) == "http://[sea"
