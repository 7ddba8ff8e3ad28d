# SPDX-License-Identifier: Apache-2.0
"""plain(): a dictionary of fields as protobuf's JSON has it. Objects of bytes stand for fields of type bytes only."""

import base64

# Messages with a JSON form of their own: the others are dictionaries of their fields.
_FORMS = frozenset(
    ("Any", "Duration", "FieldMask", "ListValue", "Struct", "Timestamp", "Value")
    + ("BoolValue", "BytesValue", "DoubleValue", "FloatValue", "Int32Value", "Int64Value", "StringValue", "UInt32Value", "UInt64Value")
)
_BYTES = (bytes, bytearray, memoryview)


def plain(fields, descriptor):
    """`fields` of a message, with base64 for bytes. TypeError: bytes for a field of another type."""
    if _has_a_form(descriptor):
        return _well_known(fields, descriptor)
    if not isinstance(fields, dict):
        return _without_bytes(fields, descriptor.full_name)
    return {name: _value(value, _field(descriptor, name), name) for name, value in fields.items()}


def _field(descriptor, name):
    """None: there is none of that name, of the .proto or of JSON."""
    if not isinstance(name, str):
        return None
    field = descriptor.fields_by_name.get(name)
    return field if field is not None else next((one for one in descriptor.fields if one.json_name == name), None)


def _value(value, field, name):
    if field is None:  # no field, which the parser says; or an extension
        return _without_bytes(value, name)
    if field.label == field.LABEL_REPEATED:
        if isinstance(value, dict) and field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            return {_without_bytes(key, name): _one(one, inner, name) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [_one(one, field, name) for one in value]
    return _one(value, field, name)


def _one(value, field, name):
    if field.type in (field.TYPE_MESSAGE, field.TYPE_GROUP):
        return plain(value, field.message_type)
    if field.type == field.TYPE_BYTES and isinstance(value, _BYTES):
        return base64.b64encode(value).decode()
    return _without_bytes(value, name)


def _has_a_form(descriptor):
    return descriptor.file.package == "google.protobuf" and descriptor.name in _FORMS


def _well_known(value, descriptor):
    if descriptor.name == "BytesValue" and isinstance(value, _BYTES):
        return base64.b64encode(value).decode()
    if descriptor.name == "Any" and isinstance(value, dict) and isinstance(value.get("@type"), str):
        kind = value["@type"]
        try:
            inner = descriptor.file.pool.FindMessageTypeByName(kind.rpartition("/")[2])
        except KeyError:
            return _without_bytes(value, kind)  # the parser says that it is not known
        fields = {name: one for name, one in value.items() if name != "@type"}
        if _has_a_form(inner):
            fields = {name: plain(one, inner) if name == "value" else one for name, one in fields.items()}
        else:
            fields = plain(fields, inner)
        return {"@type": kind, **fields}
    return _without_bytes(value, descriptor.full_name)


def _without_bytes(value, name):
    if isinstance(value, _BYTES):
        raise TypeError(f"{name} is of type {type(value).__name__}, and the field is not of type bytes")
    if isinstance(value, dict):
        return {_without_bytes(key, name): _without_bytes(inner, name) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_bytes(inner, name) for inner in value]
    return value
