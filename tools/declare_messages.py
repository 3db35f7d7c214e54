"""Writes message declarations (moldau.wire.schema) from Kafka's JSON schemas.

    python tools/declare_messages.py SCHEMA.json [SCHEMA.json …] > module.py

Used when Kafka adds a message or a version. What it prints is the module; its head line is written by hand.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
from typing import Any

PRIMITIVES = {
    "bool": ("boolean", "BOOLEAN", "bool"),
    "int8": ("int8", "INT8", "int"),
    "int16": ("int16", "INT16", "int"),
    "uint16": ("uint16", "UINT16", "int"),
    "int32": ("int32", "INT32", "int"),
    "uint32": ("uint32", "UINT32", "int"),
    "int64": ("int64", "INT64", "int"),
    "float64": ("float64", "FLOAT64", "float"),
    "uuid": ("uuid", "UUID", "Uuid"),
    "string": ("string", "STRING", "str"),
    "bytes": ("binary", "BYTES", "bytes"),
    "records": ("records", "RECORDS", "Buffer"),
}


def snake(name: str) -> str:
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return name + "_" if keyword.iskeyword(name) else name


def load(path: str) -> dict[str, Any]:
    with open(path) as file:
        text = "\n".join(line for line in file.read().split("\n") if not line.strip().startswith("//"))
    return json.loads(text)


class Declarations:
    def __init__(self, schemas: list[dict[str, Any]]) -> None:
        self.schemas = schemas
        self.used: set[str] = set()
        self.blocks: list[str] = []
        owners: dict[str, set[str]] = {}
        for schema in schemas:
            for name in self.struct_names(schema):
                owners.setdefault(name, set()).add(schema["name"])
        self.shared = {name for name, schemas_ in owners.items() if len(schemas_) > 1}

    def struct_names(self, node: dict[str, Any]) -> set[str]:
        names = {struct["name"] for struct in node.get("commonStructs", [])}
        for field in [*node.get("fields", []), *node.get("commonStructs", [])]:
            if field.get("fields"):
                if "type" in field:
                    names.add(field["type"].removeprefix("[]"))
                names |= self.struct_names(field)
        return names

    def module(self) -> str:
        for schema in self.schemas:
            self.prefix = schema["name"].removesuffix("Request").removesuffix("Response")
            self.kind = schema["name"].removeprefix(self.prefix) or schema["name"]
            self.common = {common["name"]: common for common in schema.get("commonStructs", [])}
            self.nested(schema)
            options = [f'versions="{schema["validVersions"]}"']
            if schema.get("flexibleVersions", "none") != "none":
                options.append(f'flexible="{schema["flexibleVersions"]}"')
            if "apiKey" in schema:
                options.insert(0, f"api_key={schema['apiKey']}")
            bases = "Message, " + ", ".join(options)
            self.blocks.append(self.block(schema["name"], bases, schema.get("fields", [])))
        lines = ["from __future__ import annotations", ""]
        if "Uuid" in self.used:
            lines.append("from moldau.wire.ids import Uuid")
        names = sorted(self.used - {"Uuid", "Buffer"})
        if "Buffer" in self.used:
            lines.append("from moldau.wire.codec import Buffer")
        lines.append("from moldau.wire.schema import " + ", ".join(["Message", *names]))
        return "\n".join(lines) + "\n\n\n" + "\n\n\n".join(self.blocks) + "\n"

    def class_name(self, name: str) -> str:
        return self.kind + name if name in self.shared else name

    def nested(self, node: dict[str, Any]) -> None:
        """Declares what the fields of `node` refer to, so that every class stands above its users."""
        for field in node.get("fields", []):
            kind = field["type"].removeprefix("[]")
            declared = self.common.pop(kind, None) or (field if field.get("fields") else None)
            if declared is not None:
                self.nested(declared)
                self.blocks.append(self.block(self.class_name(kind), "Struct", declared["fields"]))

    def block(self, name: str, bases: str, fields: list[dict[str, Any]]) -> str:
        if bases == "Struct":
            self.used.add("Struct")
        lines = [f"class {name}({bases}):"]
        lines += ["    " + self.field(field) for field in fields] or ["    pass"]
        return "\n".join(lines)

    def field(self, field: dict[str, Any]) -> str:
        kind = field["type"]
        is_array = kind.startswith("[]")
        kind = kind.removeprefix("[]")
        arguments = [f'"{field["versions"]}"']
        if kind in PRIMITIVES:
            maker, constant, hint = PRIMITIVES[kind]
        else:
            hint = self.class_name(kind)
            maker, constant = "struct", hint
            if not is_array:
                arguments.insert(0, hint)
        if is_array:
            arguments.insert(0, constant)
            if kind in PRIMITIVES:
                self.used.add(constant)
            maker = "array"
            hint_outer = f"list[{hint}]"
        else:
            hint_outer = hint
        if hint in ("Uuid", "Buffer"):
            self.used.add(hint)
        self.used.add(maker)
        if field.get("nullableVersions") or kind == "records":
            hint_outer += " | None"
        if field.get("nullableVersions"):
            arguments.append(f'nullable="{field["nullableVersions"]}"')
        if field.get("default") is not None:  # null without quotes is no default; in quotes it is null
            default = self.default(field["default"], kind)
            if default is not None:
                arguments.append(f"default={default}")
        elif snake(field["name"]) in ("throttle_time_ms", "error_code"):
            arguments.append("default=0")
        if field.get("tag") is not None:
            arguments.append(f'tag={field["tag"]}, tagged="{field["taggedVersions"]}"')
        if field.get("ignorable"):
            arguments.append("ignorable=True")
        return f"{snake(field['name'])}: {hint_outer} = {maker}({', '.join(arguments)})"

    def default(self, value: Any, kind: str) -> str | None:
        text = str(value).strip().lower() if not isinstance(value, bool) else str(value).lower()
        if text in ("null", "none"):
            return "None"
        if kind == "bool":
            return "True" if text == "true" else "False"
        if kind in ("string", "bytes"):
            return repr(str(value))
        if kind.startswith(("int", "uint", "float")):
            return str(int(text, 0)) if kind != "float64" else str(float(text))
        return None


if __name__ == "__main__":
    sys.stdout.write(Declarations([load(path) for path in sys.argv[1:]]).module())
