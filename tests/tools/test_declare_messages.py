"""The declarations printed from a schema are a module, and its messages have the schema's layout."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from moldau.wire.codec import decode_whole, encode
from moldau.wire.schema import Versions

TOOL = Path(__file__).parents[2] / "tools" / "declare_messages.py"
SCHEMA = """
// A comment, as Kafka's files have them.
{
  "apiKey": 99, "type": "request", "name": "ExampleRequest", "validVersions": "0-3", "flexibleVersions": "2+",
  "fields": [
    { "name": "GroupId", "type": "string", "versions": "0+", "entityType": "groupId" },
    // And between fields.
    { "name": "Topics", "type": "[]Topic", "versions": "0+", "nullableVersions": "1+", "fields": [
      { "name": "TopicId", "type": "uuid", "versions": "1+", "ignorable": true },
      { "name": "Partitions", "type": "[]int32", "versions": "0+" }
    ]},
    { "name": "TimeoutMs", "type": "int32", "versions": "1+", "default": "0x3e8" },
    { "name": "IsFast", "type": "bool", "versions": "2+", "default": "true",
      "tag": 0, "taggedVersions": "2+" },
    { "name": "Where", "type": "Place", "versions": "3+", "nullableVersions": "3+", "default": "null" },
    { "name": "from", "type": "float64", "versions": "3+" }
  ],
  "commonStructs": [
    { "name": "Place", "versions": "0+", "fields": [{ "name": "Rack", "type": "string", "versions": "0+" }] }
  ]
}
"""


def declared(tmp_path: Path, *schemas: str) -> ModuleType:
    paths = []
    for number, schema in enumerate(schemas):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(schema)
    source = subprocess.run([sys.executable, TOOL, *paths], check=True, capture_output=True, text=True).stdout
    module = ModuleType("example")
    exec(compile(source, "example", "exec"), module.__dict__)
    return module


def test_a_schema_becomes_a_message(tmp_path: Path):
    example = declared(tmp_path, SCHEMA)
    request = example.ExampleRequest
    assert (99, Versions(0, 3)) == (request.API_KEY, request.VERSIONS)
    assert (request.FLEXIBLE.first, request().timeout_ms, request().is_fast) == (2, 1000, True)

    assert encode(request(group_id="g"), 0) == b"\0\1g" + b"\0\0\0\0"
    assert encode(request(group_id="g", topics=None), 1) == b"\0\1g" + b"\xff" * 4 + b"\0\0\x03\xe8"
    assert encode(request(is_fast=False), 2) == b"\1" + b"\1" + b"\0\0\x03\xe8" + b"\1\0\1\0"

    topic = example.Topic(topic_id=bytes(range(16)), partitions=[1, 2])
    sent = request(group_id="g", topics=[topic], where=example.Place(rack="r"), from_=0.5, is_fast=False)
    assert decode_whole(request, 3, encode(sent, 3)) == sent


def test_structs_of_the_same_name_in_request_and_response_are_told_apart(tmp_path: Path):
    response = json.dumps(
        {
            "apiKey": 99,
            "name": "ExampleResponse",
            "validVersions": "0-3",
            "flexibleVersions": "none",
            "fields": [
                {
                    "name": "Topics",
                    "type": "[]Topic",
                    "versions": "0+",
                    "fields": [{"name": "ErrorCode", "type": "int16", "versions": "0+"}],
                }
            ],
        }
    )
    example = declared(tmp_path, SCHEMA, response)
    assert example.RequestTopic().partitions == []
    sent = example.ExampleResponse(topics=[example.ResponseTopic(error_code=3)])
    assert encode(sent, 0) == b"\0\0\0\1" + b"\0\3"
