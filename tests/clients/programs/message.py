"""The message of the Python clients, and how they print what they decode."""

import datetime
import decimal
import json

BODY = b"\x00\xff\xfe gr\xc3\xbcn\n"

HEADERS = {
    "text": "grün 緑",
    "empty text": "",
    "bytes": b"\x00\xff\xfe",
    "true": True,
    "false": False,
    "small": 7,
    "negative": -7,
    "largest of 32 bits": 2**31 - 1,
    "smallest of 32 bits": -(2**31),
    "beyond 32 bits": 2**31,
    "largest": 2**63 - 1,
    "smallest": -(2**63),
    "double": 0.1,
    "tiny": 5e-324,
    "negative zero": -0.0,
    "decimal": decimal.Decimal("1234.56"),
    "negative decimal": decimal.Decimal("-1234.56"),
    "time": datetime.datetime(2033, 5, 18, 3, 33, 20, tzinfo=datetime.timezone.utc),
    "nothing": None,
    "list": [1, "two", [3.5, None], {"four": b"\xff"}],
    "empty list": [],
    "table": {"one": 1, "deeper": {"two": 2**40, "list": [True]}},
    "empty table": {},
    "x-mine": "kept, although the broker's headers begin like this",
    "return-to": "kept, although rehop has one with a prefix",
}


def changed(value, kind, change):
    """The value with everything in it that has this type changed, for a client that does not write
    the type."""
    if isinstance(value, dict):
        return {name: changed(inside, kind, change) for name, inside in value.items()}
    if isinstance(value, list):
        return [changed(inside, kind, change) for inside in value]
    return change(value) if isinstance(value, kind) else value


def typed(value):
    """The value with the name of its type at each level."""
    if isinstance(value, dict):
        return {"dict": {str(name): typed(inside) for name, inside in value.items()}}
    if isinstance(value, (list, tuple)):
        return {"list": [typed(inside) for inside in value]}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": bytes(value).hex()}
    return {type(value).__name__: repr(value)}


def show(routing_key, properties, headers, body):
    """Prints a message. Properties without a value are left out."""
    print(json.dumps({
        "routing_key": routing_key,
        "properties": {name: typed(value) for name, value in properties.items() if value is not None},
        "headers": {name: typed(value) for name, value in (headers or {}).items()},
        "body": typed(body),
    }))
