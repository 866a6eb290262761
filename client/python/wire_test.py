"""Compares the tables of sru_wire.py with the contract: wire_test.py INFERENCE_PROTO"""

import re
import sys
import unittest

import sru_wire

# Where a type of the contract is not the name of its table in capitals.
KINDS = {
    "string": "string",
    "bytes": "bytes",
    "float": "float",
    "double": "double",
    "bool": "int",
    "int32": "int",
    "int64": "int",
    "uint64": "int",
}
FIELD = re.compile(
    r"^\s*(repeated |optional )?(map<(\w+), (\w+)>|[\w.]+) (\w+) = (\d+);", re.MULTILINE
)


def table_name(message):
    """TOKEN_IDS of TokenIds."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", message).upper()


def read_contract(path):
    """({message: {field: (number, type, repeated)}}, names of enums); a map's type is a message
    of its own."""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"//.*", "", file.read())
    enums = set(re.findall(r"\benum (\w+)", text))
    messages = {}
    for name, body in re.findall(r"(?ms)^message (\w+) \{\n(.*?)^\}", text):
        body = re.sub(r"(?s)enum \w+ \{.*?\}", "", body)
        fields = {}
        for label, kind, key, value, field, number in FIELD.findall(body):
            if key:
                entry = table_name(field)
                messages[entry] = {"key": (1, key, False), "value": (2, value, False)}
                fields[field] = (int(number), entry, True)
            else:
                fields[field] = (int(number), kind, label.strip() == "repeated")
        messages[table_name(name)] = fields
    return messages, enums


class ContractTest(unittest.TestCase):
    def setUp(self):
        self.messages, self.enums = read_contract(sys.argv[1])
        self.tables = {
            name: value
            for name, value in vars(sru_wire).items()
            if name.isupper() and isinstance(value, dict) and not name.startswith("_")
        }

    def kind(self, message, field):
        """The type of the field as sru_wire writes it, with names of tables for tables."""
        number, kind, repeated = self.messages[message][field]
        if kind in KINDS:
            kind = KINDS[kind]
        elif kind in self.enums:
            kind = "int"
        else:
            kind = table_name(kind)
        return number, [kind] if repeated else kind

    def test_every_field_is_that_of_the_contract(self):
        names = {id(table): name for name, table in self.tables.items()}
        self.assertGreater(len(self.tables), 25)

        def name_of(kind):
            return names[id(kind)] if isinstance(kind, dict) else kind

        for message, table in self.tables.items():
            self.assertIn(message, self.messages)
            for field, (number, kind) in table.items():
                self.assertIn(field, self.messages[message], message)
                kind = [name_of(kind[0])] if isinstance(kind, list) else name_of(kind)
                self.assertEqual((number, kind), self.kind(message, field), (message, field))

    def test_no_field_is_missing(self):
        for message, table in self.tables.items():
            # Nobody sends audio from here.
            missing = set(self.messages[message]) - set(table) - {"features"}
            self.assertEqual(missing, set(), message)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    unittest.main(argv=sys.argv[:1], verbosity=2)
